package kernel

import "gradnic/internal/cpu"

// The functions here choose the assembly by level. They are called with a level
// above off only, and return how much they did from the front: blocks for the
// block formats, elements otherwise.

func encodeFast(f Format, body, scales []byte, src []float32) int {
	done := 0
	if level == cpu.AVX512 {
		switch f {
		case BFP16:
			done = bfp16EncodeAVX512(body, scales, src)
		case Intel:
			done = intelEncodeAVX512(body, scales, src)
		case E4M3:
			done = e4m3EncodeAVX512(body, scales, src)
		case E5M2:
			done = e5m2EncodeAVX512(body, scales, src)
		case E2M1:
			done = e2m1EncodeAVX512(body, scales, src)
		case MXInt8:
			done = mxint8EncodeAVX512(body, scales, src)
		}
		if len(scales)-done < groupBlocks {
			return done
		}
		body, scales, src = body[done*f.Width():], scales[done:], src[done*f.Block():]
	}
	// AVX-512 groups are twice as long: AVX2 takes one that is left, or the
	// first half of a refused one.
	switch f {
	case BFP16:
		done += bfp16EncodeAVX2(body, scales, src)
	case Intel:
		done += intelEncodeAVX2(body, scales, src)
	case E4M3:
		done += e4m3EncodeAVX2(body, scales, src)
	case E5M2:
		done += e5m2EncodeAVX2(body, scales, src)
	case E2M1:
		done += e2m1EncodeAVX2(body, scales, src)
	case MXInt8:
		done += mxint8EncodeAVX2(body, scales, src)
	}
	return done
}

func decodeFast(f Format, dst []float32, body, scales []byte) int {
	if level == cpu.AVX512 {
		switch f {
		case BFP16:
			return bfp16DecodeAVX512(dst, body, scales)
		case Intel:
			return intelDecodeAVX512(dst, body, scales)
		case E4M3:
			return e4m3DecodeAVX512(dst, body, scales)
		case E5M2:
			return e5m2DecodeAVX512(dst, body, scales)
		case E2M1:
			return e2m1DecodeAVX512(dst, body, scales)
		case MXInt8:
			return mxint8DecodeAVX512(dst, body, scales)
		}
	}
	switch f {
	case BFP16:
		return bfp16DecodeAVX2(dst, body, scales)
	case Intel:
		return intelDecodeAVX2(dst, body, scales)
	case E4M3:
		return e4m3DecodeAVX2(dst, body, scales)
	case E5M2:
		return e5m2DecodeAVX2(dst, body, scales)
	case E2M1:
		return e2m1DecodeAVX2(dst, body, scales)
	case MXInt8:
		return mxint8DecodeAVX2(dst, body, scales)
	}
	return 0
}

func addFast(f Format, dst []float32, body, scales []byte) int {
	if level == cpu.AVX512 {
		switch f {
		case BFP16:
			return bfp16AddAVX512(dst, body, scales)
		case Intel:
			return intelAddAVX512(dst, body, scales)
		case E4M3:
			return e4m3AddAVX512(dst, body, scales)
		case E5M2:
			return e5m2AddAVX512(dst, body, scales)
		case E2M1:
			return e2m1AddAVX512(dst, body, scales)
		case MXInt8:
			return mxint8AddAVX512(dst, body, scales)
		}
	}
	switch f {
	case BFP16:
		return bfp16AddAVX2(dst, body, scales)
	case Intel:
		return intelAddAVX2(dst, body, scales)
	case E4M3:
		return e4m3AddAVX2(dst, body, scales)
	case E5M2:
		return e5m2AddAVX2(dst, body, scales)
	case E2M1:
		return e2m1AddAVX2(dst, body, scales)
	case MXInt8:
		return mxint8AddAVX2(dst, body, scales)
	}
	return 0
}

func encodeFP16Fast(dst []byte, src []float32) int {
	if level == cpu.AVX512 {
		return fp16EncodeAVX512(dst, src)
	}
	return fp16EncodeAVX2(dst, src)
}

func decodeFP16Fast(dst []float32, src []byte) int {
	if level == cpu.AVX512 {
		return fp16DecodeAVX512(dst, src)
	}
	return fp16DecodeAVX2(dst, src)
}

func encodeBF16Fast(dst []byte, src []float32) int {
	if level == cpu.AVX512 {
		return bf16EncodeAVX512(dst, src)
	}
	return bf16EncodeAVX2(dst, src)
}

func decodeBF16Fast(dst []float32, src []byte) int {
	if level == cpu.AVX512 {
		return bf16DecodeAVX512(dst, src)
	}
	return bf16DecodeAVX2(dst, src)
}

func maxAbsFast(x []float32) (m uint32, done int) {
	var lanes [16]uint32
	if level == cpu.AVX512 {
		done = maxAbsAVX512(x, &lanes)
	} else {
		done = maxAbsAVX2(x, &lanes)
	}
	for _, l := range lanes {
		m = max(m, l)
	}
	return m, done
}

func roundInt8Fast(dst []byte, src []float32, scale float32) int {
	if level == cpu.AVX512 {
		return roundInt8AVX512(dst, src, scale)
	}
	return roundInt8AVX2(dst, src, scale)
}

func scaleInt8Fast(dst []float32, src []byte, scale float32) int {
	if level == cpu.AVX512 {
		return scaleInt8AVX512(dst, src, scale)
	}
	return scaleInt8AVX2(dst, src, scale)
}

func sumSquaresFast(x []float32, s *[8]float64) int { return sumSquaresAVX2(x, s) }

func (p *Philox) state() [6]uint32 {
	return [6]uint32{p.Key[0], p.Key[1], p.Base, p.Counter[0], p.Counter[1], p.Counter[2]}
}

// The random kernels take 64 elements a turn with AVX-512 and 32 with AVX2, which
// does what AVX-512 leaves. counter moves the state on by whole turns.
func counter(s [6]uint32, elements int) [6]uint32 {
	s[2] += uint32(elements / 4)
	return s
}

func philoxFast(dst []uint32, p *Philox) (done int) {
	s := p.state()
	if level == cpu.AVX512 {
		done = philoxAVX512(dst, &s)
		s = counter(s, done)
	}
	return done + philoxAVX2(dst[done:], &s)
}

func stochasticInt8Fast(dst []byte, src []float32, scale float32, p *Philox) (done int) {
	s := p.state()
	if level == cpu.AVX512 {
		done = stochasticInt8AVX512(dst, src, scale, &s)
		s = counter(s, done)
	}
	return done + stochasticInt8AVX2(dst[done:], src[done:], scale, &s)
}

func flipSignsFast(x []float32, bits *[4]uint32) { flipSignsAVX2(&x[0], bits) }

func hadamardFast(x []float32) bool {
	hadamardAVX2(&x[0])
	return true
}

func roundTableFast(dst []byte, src []float32, scale float32, k *Table, r *Philox) (done int) {
	s := r.state()
	limits := [3]float32{k.t, -k.t, k.unit}
	if level == cpu.AVX512 {
		done = roundTableAVX512(dst, src, scale, &limits, &k.below, &k.value, &k.next, &s)
		s[2] += uint32(done / 8)
	}
	return done + roundTableAVX2(dst[done/2:], src[done:], scale, &limits, &k.below, &k.value, &k.next, &s)
}

func addTableFast(acc, indices []byte, k *Table) int {
	return addTableAVX2(acc, indices, &k.value)
}

func affineUint8Fast(dst []float32, src []byte, step, offset, scale float32) int {
	return affineUint8AVX2(dst, src, step, offset, scale)
}

func putFloatsFast(dst []byte, src []float32) int { return putFloatsAVX2(dst, src) }

func getFloatsFast(dst []float32, src []byte) int { return getFloatsAVX2(dst, src) }

func quantiseInt32Fast(dst []int32, src []float32, scale, limit float64) int {
	return quantiseInt32AVX2(dst, src, scale, limit)
}

func dequantiseInt32Fast(dst []float32, src []int32, step float64) int {
	return dequantiseInt32AVX2(dst, src, step)
}
