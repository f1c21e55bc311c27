package bump

import (
	"math"

	wire "gradnic/wire/bump"
)

// put copies elements of width bytes, 2 or 4, turning the order of each one's bytes around where they are big endian.
func put(dst, src []byte, width int, bigEndian bool) {
	dst = dst[:len(src)]
	switch {
	case !bigEndian:
		copy(dst, src)
	case width == 2:
		for ; len(src) >= 2; dst, src = dst[2:], src[2:] {
			dst[0], dst[1] = src[1], src[0]
		}
	default:
		for ; len(src) >= 4; dst, src = dst[4:], src[4:] {
			dst[0], dst[1], dst[2], dst[3] = src[3], src[2], src[1], src[0]
		}
	}
}

// The largest finite values of the short types.
const (
	maxFloat16  = 65504
	maxBFloat16 = 0x1.fep127
)

// fromValues writes values as elements of a float type. What is finite stays finite: a codec may round a value up over the
// largest that the type has.
func (e *Engine) fromValues(dst []byte, values []float32, t wire.Type, bigEndian bool) error {
	if t != wire.Float32 {
		most := float32(maxFloat16)
		if t == wire.BFloat16 {
			most = maxBFloat16
		}
		for i, v := range values {
			if v > most && v <= math.MaxFloat32 {
				values[i] = most
			} else if v < -most && v >= -math.MaxFloat32 {
				values[i] = -most
			}
		}
	}
	into := dst
	if bigEndian {
		into = e.elements[:len(dst)]
	}
	if _, err := e.plain[t].Encode(into, values, nil); err != nil {
		return err
	}
	if bigEndian {
		put(dst, into, t.Size(), true)
	}
	return nil
}
