//go:build !race

package accl_test

const underRace = false
