package multicast

import "gradnic/wire/switchml"

// SwitchML writes one SwitchML result for each copy: frames[i] becomes the
// whole frame for copies[i], with the values copied in unless they are there
// already (values is frames[i][switchml.ValuesOffset:n] itself). It returns the
// length of each frame, or 0, and has written nothing, if r.Elements has no
// size code, values does not have that many elements, or there are fewer frames
// than copies or a frame is too short.
//
// r gives the fields that all copies share, with those of the packet that
// completed the result where the protocol echoes them; r.Worker.MAC and IP are
// not looked at, and r.Worker.Port is used for copies that have none.
func SwitchML(frames [][]byte, copies []Copy, r switchml.Reply, values []byte) int {
	n := switchml.FrameLen(r.Elements)
	if len(frames) < len(copies) || len(values) != n-switchml.ValuesOffset {
		return 0
	}
	t, ok := switchml.NewReplyTemplate(r)
	if !ok {
		return 0
	}
	for i := range copies {
		if len(frames[i]) < n {
			return 0
		}
	}
	for i := range copies {
		c := &copies[i]
		port := c.UDPPort
		if port == 0 {
			port = r.Worker.Port
		}
		f := frames[i]
		t.Put(f, c.MAC, c.IP, port)
		if &f[switchml.ValuesOffset] != &values[0] {
			copy(f[switchml.ValuesOffset:n], values)
		}
	}
	return n
}
