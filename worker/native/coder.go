package native

import (
	"encoding/binary"
	"fmt"
	"math"

	"gradnic/codec"
	wire "gradnic/wire/native"
)

// coder is what a worker has for a job whose values are compressed. A contribution is encoded once, when it is sent first:
// what is sent again are the same bytes.
type coder struct {
	in, out     codec.Codec // of contributions and results
	inID, outID uint8       // as the wire has them; 0 for elements of type bfp16, whose messages have no codec
	rank        uint32
	state       *codec.State
	most        int // bytes of a result

	lengths []int     // by slot: bytes of the newest chunk's contribution
	values  []float32 // one packet's, of both ways
	decoded []float32 // the result that takes looked at
	raw     []byte
	work    []float32 // scratch of error feedback
	pad     []float32
}

// learnCodecs takes the job's codecs from a notice.
func (e *engine) learnCodecs(n *wire.NoticeBody) error {
	j := &e.job
	j.Codec, j.Result = "none", "none"
	x := &coder{inID: n.Codec, outID: n.Result, rank: uint32(e.cfg.Rank), lengths: make([]int, j.Slots)}
	switch {
	case j.Type == wire.BFP16:
		in, err := codec.ByID(codec.IDBFP16)
		if err != nil {
			return err
		}
		x.in, x.out = in, in
	case n.Codec|n.Result != 0:
		var err error
		if x.in, err = codec.ByParam(codec.ID(n.Codec), n.CodecParam); err != nil {
			return fmt.Errorf("the NIC's notice makes no sense: %w", err)
		}
		if x.out, err = codec.ByParam(codec.ID(n.Result), n.ResultParam); err != nil {
			return fmt.Errorf("the NIC's notice makes no sense: %w", err)
		}
		j.Codec, j.Result = x.in.Info().Name, x.out.Info().Name
	}
	if want := e.cfg.Codec; want != "" {
		c, err := codec.ByName(want)
		if err != nil {
			return err
		}
		if x.inID != uint8(c.Info().ID) || x.in != nil && codec.Param(x.in, j.Elements) != codec.Param(c, j.Elements) {
			return fmt.Errorf("the job's codec is %s, not %s: install it so, or ask for what it is", j.Codec, want)
		}
	}
	if x.in == nil {
		return nil
	}
	stateful := x.in
	if x.out.Info().ID == codec.IDLossless {
		stateful = x.out
	}
	x.state = codec.NewState(stateful, j.Elements, codec.StateOptions{Seed: e.cfg.Seed, Worker: x.rank})
	x.most = x.out.MaxEncoded(j.Elements)
	x.values, x.decoded, x.raw = make([]float32, j.Elements), make([]float32, j.Elements), make([]byte, 4*j.Elements)
	x.work, x.pad = make([]float32, j.Elements), make([]float32, j.Elements)
	j.sparse = x.in.Info().ID == codec.IDTopK
	e.coder = x
	return nil
}

// compressed reports whether values lose something on their way, or may.
func (j *Job) compressed() bool {
	return j.Codec != "none" || j.Result != "none" || j.Type == wire.BFP16
}

// elementBytes is the size of an element in the arrays of calls.
func (j *Job) elementBytes() int {
	if j.Type == wire.BFP16 {
		return 4
	}
	return j.Type.Size()
}

// floats are a call's arrays, from which a coder reads and to which it writes without a detour.
type floats struct {
	src, dst []float32
	feedback *Feedback
}

// floatsOf gives the arrays of an all-reduce when the job has a codec, else nil.
func floatsOf[T Element](w *Worker, dst, src []T, f *Feedback) *floats {
	d, ok := any(dst).([]float32)
	if !ok || w.e.coder == nil {
		return nil
	}
	s, _ := any(src).([]float32)
	return &floats{src: s, dst: d, feedback: f}
}

// encode writes elements lo to hi of a call to b as a contribution: padded with zeros to a packet, and encoded.
func (x *coder) encode(c *call, chunk uint64, lo, hi int, b []byte) (int, error) {
	v := x.values
	switch f := c.floats; {
	case hi == lo:
		clear(v)
	case f == nil:
		raw := x.raw[:4*(hi-lo)]
		c.fill(lo, hi, raw)
		for i := range hi - lo {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		clear(v[hi-lo:])
	case hi-lo == len(v):
		v = f.src[lo:hi]
	default:
		clear(v[copy(v, f.src[lo:hi]):])
	}
	x.state.Round = chunk
	if c.floats == nil || c.floats.feedback == nil || hi == lo {
		return x.in.Encode(b, v, x.state)
	}
	residual := c.floats.feedback.residual[lo:hi]
	if len(residual) == len(v) {
		return codec.EncodeResidual(x.in, b, v, residual, x.work, x.state)
	}
	clear(x.pad[copy(x.pad, residual):])
	n, err := codec.EncodeResidual(x.in, b, v, x.pad, x.work, x.state)
	copy(residual, x.pad)
	return n, err
}

// takes reports whether v is a result of the job's codec, and decodes it.
func (x *coder) takes(v wire.View) bool {
	b := v.Payload()
	return v.Codec() == x.outID && len(b) > 0 && len(b) <= x.most && x.out.Decode(x.decoded, b, x.state) == nil
}

// deliver gives a call the elements lo to hi of what takes decoded.
func (x *coder) deliver(c *call, lo, hi int) {
	if f := c.floats; f != nil {
		copy(f.dst[lo:hi], x.decoded)
		return
	}
	raw := x.raw[:4*(hi-lo)]
	for i, v := range x.decoded[:hi-lo] {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	c.drain(lo, hi, raw)
}
