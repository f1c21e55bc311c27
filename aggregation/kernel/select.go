package kernel

import (
	"fmt"
	"os"

	"gradnic/internal/cpu"
)

// selected is the level of all loops, chosen once at start.
var selected = min(cpu.Level(), best())

// best is the highest level that both this machine and this package's assembly have.
func best() cpu.Tier {
	if !hasAssembly {
		return cpu.Off
	}
	return cpu.Machine()
}

// asked is what the environment said at start.
var asked = os.Getenv(cpu.Environment)

// Selected returns the level of the loops in use: "off" (pure Go), "avx2" or "avx512". The error tells that the
// environment asked for something else: a word that is unknown, or a level that this machine does not have.
func Selected() (name string, err error) { return selected.String(), explain(asked, selected) }

func explain(asked string, got cpu.Tier) error {
	if asked == "" || asked == got.String() {
		return nil
	}
	for _, tier := range []cpu.Tier{cpu.AVX2, cpu.AVX512} {
		if asked == tier.String() {
			return fmt.Errorf("%s=%s: this machine has only %v, which is used", cpu.Environment, asked, got)
		}
	}
	return fmt.Errorf("%s=%s: unknown level, want off, avx2 or avx512; using %v", cpu.Environment, asked, got)
}
