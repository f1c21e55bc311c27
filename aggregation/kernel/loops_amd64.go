package kernel

import "gradnic/internal/cpu"

const hasAssembly = true

func loopsFor[A Element](tier cpu.Tier, t Type) (l loops[A]) {
	switch l := any(&l).(type) {
	case *loops[int32]:
		*l = loopsI32(tier, t)
	case *loops[int64]:
		*l = loopsI64(tier, t)
	case *loops[float32]:
		*l = loopsF32(tier, t)
	case *loops[float64]:
		*l = loopsF64(tier, t)
	}
	return l
}
