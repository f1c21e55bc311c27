package dataplane

import (
	"fmt"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/wire/native"
	"gradnic/xdp"
)

// This file is what native jobs with codecs have of their own: which codecs they have, and where results go that do not fit
// in the frame that completed them, because a codec made them longer than a contribution is.

// Codecs are the codecs of contributions and results of elements values by workers; both are nil when there are none. A
// sum of contributions by top-k has at most workers times as many values as one of them, so where no Result is named all are sent:
// by top-k of so many, or plain where that is shorter.
func (s *NativeSpec) Codecs(workers, elements int) (in, out codec.Codec, err error) {
	if in, err = codecOf(s.Codec); err != nil {
		return nil, nil, fmt.Errorf("codec: %w", err)
	}
	if s.Result != "" || in == nil {
		if out, err = codecOf(s.Result); err != nil {
			return nil, nil, fmt.Errorf("codec of results: %w", err)
		}
		return in, out, nil
	}
	k, sparse := codec.TopKCount(in, elements)
	if !sparse {
		return in, in, nil
	}
	if k *= workers; 2*k >= elements {
		return in, nil, nil
	}
	out, err = codec.NewTopKCount(k)
	return in, out, err
}

// NameCodecs writes out what codecs there are, "none" for none; names that there are not stay.
func (s *NativeSpec) NameCodecs(workers, elements int) {
	if in, out, err := s.Codecs(workers, elements); err == nil {
		s.Codec, s.Result = codecName(in), codecName(out)
	}
}

// codecOf finds a codec by name; nil is none.
func codecOf(name string) (codec.Codec, error) {
	if name == "" {
		return nil, nil
	}
	c, err := codec.ByName(name)
	if err != nil || c.Info().ID == codec.IDNone {
		return nil, err
	}
	return c, nil
}

func codecName(c codec.Codec) string {
	if c == nil {
		return "none"
	}
	return c.Info().Name
}

// FitElements is how many elements a frame may have so that contributions and results fit in room bytes; 0 when not even
// one does, or when there is no such codec.
func (s *NativeSpec) FitElements(workers, room int) int {
	low, high := 0, aggregation.MaxElements+1
	for high-low > 1 {
		n := (low + high) / 2
		in, out, err := s.Codecs(workers, n)
		if err != nil {
			return 0
		}
		if spec := (aggregation.Spec{Type: s.Type, Codec: in, Result: out, Elements: n}); max(spec.WireBytes(), spec.ResultBytes()) > room {
			high = n
		} else {
			low = n
		}
	}
	if (s.Codec != "" && s.Codec != "none" || s.Result != "" && s.Result != "none") && low >= 32 {
		low &^= 31
	}
	return low
}

// setCodecs is what a lane has to know of a job's codecs.
func (x *laneNative) setCodecs(spec *aggregation.Spec) {
	for _, f := range []struct {
		c     codec.Codec
		id    *uint8
		tell  *uint8
		param *uint32
	}{
		{spec.Codec, &x.codec, &x.notice.Codec, &x.notice.CodecParam}, {spec.Result, &x.result, &x.notice.Result, &x.notice.ResultParam},
	} {
		if f.c != nil {
			*f.id = uint8(f.c.Info().ID)
			*f.tell, *f.param = *f.id, codec.Param(f.c, spec.Elements)
		}
	}
	x.coded = true
}

// takesInPlace reports whether frame i may become a frame of n bytes.
func (l *lane) takesInPlace(i, n int) bool {
	switch {
	case l.chains == nil:
		return true // whatever fits a frame fits its chunk
	case l.batch.desc[i].Options != 0:
		return n <= len(l.batch.flat[i])
	}
	return n <= int(l.chunk)-xdp.KernelHeadroom
}

// wholeResult is the frame of a result as contiguous bytes, with room for its tag, or nil when it fits a chunk. The values lie in
// x.whole, or in a frame that supplied them.
func (l *lane) wholeResult(x *laneNative, values []byte) []byte {
	n := native.FrameLen(len(values) + x.tagLen())
	if n <= int(l.chunk) {
		return nil
	}
	f := x.whole[:n]
	copy(f[native.ValuesOffset:], values)
	return f
}

// resultElsewhere is resultTo for a result that is too long for frame i, which is freed.
func (l *lane) resultElsewhere(j *laneJob, i int, h *native.Header, values []byte, w *laneWorker) {
	port := int(l.batch.port[i])
	mac, ip, _, udp := l.station(i)
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	payload := len(values) + j.native.tagLen()
	f := j.native.whole[:native.FrameLen(payload)]
	copy(f[native.ValuesOffset:], values)
	native.PutFrame(f, &from, &native.Endpoint{MAC: mac, IP: ip, Port: udp}, h, payload)
	j.native.seal(l.batch.msg[i].Rank(), f)
	l.freeFrame(i)
	d, tail, ok := l.scatter(f)
	if !ok {
		l.lostReplica(port, NoFrame)
		return
	}
	l.sendReplica(port, d, tail, sentReplica, w)
}
