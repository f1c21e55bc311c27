//go:build race

package bump

const raceDetector = true
