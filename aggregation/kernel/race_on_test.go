//go:build race

package kernel

// raceDetector makes Go so much slower that fewer alignments are tried.
const raceDetector = true
