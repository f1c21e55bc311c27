//go:build race

package aggregation

// checks is the number of cases of each property test. The race detector makes
// them about ten times slower, and the code under test has no goroutines.
const checks = "1000"

const raceDetector = true
