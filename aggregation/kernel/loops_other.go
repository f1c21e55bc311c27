//go:build !amd64

package kernel

import "gradnic/internal/cpu"

const hasAssembly = false

// loopsFor has no assembly to offer for this architecture.
func loopsFor[A Element](cpu.Tier, Type) (l loops[A]) { return l }
