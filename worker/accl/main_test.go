package accl_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// full tries every size where a short run takes some: make accl-full.
var full = flag.Bool("full", false, "try every size")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
