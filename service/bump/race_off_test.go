//go:build !race

package bump

const raceDetector = false
