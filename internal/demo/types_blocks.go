package demo

import (
	"math"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/dataplane"
)

// newBlockModel is newTypeModel for type bfp16, whose arrays are float32 and whose packets are blocks: each packet of each worker is
// rounded to blocks, and so is each result.
func newBlockModel(job dataplane.JobSpec, inputs [][]float32) (*typeModel[float32], error) {
	blocks, err := codec.ByID(codec.IDBFP16)
	if err != nil {
		return nil, err
	}
	n, e := len(inputs[0]), job.Elements
	m := &typeModel[float32]{typ: aggregation.Float32, in: inputs, sum: make([]float64, n), bound: make([]float64, n)}
	spec := aggregation.Spec{
		Rule: aggregation.Rounds, Workers: len(inputs), Slots: 1, Elements: e, Type: aggregation.BFP16, ByteOrder: aggregation.LittleEndian,
		Order: aggregation.Ranked,
	}
	ranked := make([]float32, n)
	result := make([]byte, spec.ResultBytes())
	parts := make([][]byte, len(inputs))
	packet, magnitude, bound := make([]float32, e), make([]float64, e), make([]float64, e)
	for lo := 0; lo < n; lo += e {
		hi := min(lo+e, n)
		clear(magnitude)
		for rank, in := range inputs {
			clear(packet[copy(packet, in[lo:hi]):])
			parts[rank] = make([]byte, blocks.MaxEncoded(e))
			if _, err := blocks.Encode(parts[rank], packet, nil); err != nil {
				return nil, err
			}
			if err := blocks.Decode(packet, parts[rank], nil); err != nil {
				return nil, err
			}
			for i, x := range packet {
				magnitude[i] += math.Abs(float64(x))
			}
			for i, x := range packet[:hi-lo] {
				m.sum[lo+i] += float64(x)
			}
		}
		spec.Bound(bound, magnitude, len(inputs))
		for i := range hi - lo {
			m.bound[lo+i] = bound[i] + magnitude[i]*0x1p-49 // the sum here is rounded, too
			m.maxBound = max(m.maxBound, m.bound[lo+i])
		}
		if _, err := aggregation.Reference(spec, parts, result); err != nil {
			return nil, err
		}
		if err := blocks.Decode(packet, result, nil); err != nil {
			return nil, err
		}
		copy(ranked[lo:hi], packet)
	}
	m.ranked = bytesOf(ranked)
	return m, nil
}
