// Package card holds profiles of real cards and switches that aggregate, so that
// gradnic in the place of one refuses what that one would refuse.
//
// A profile is YAML, strict, and every figure in it has a source. A figure that is
// left out bounds nothing. Profiles say what a device takes, not how fast it is.
package card
