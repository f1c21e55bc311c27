//go:build !race

package aggregation

// checks is the number of cases of each property test.
const checks = "10000"

const raceDetector = false
