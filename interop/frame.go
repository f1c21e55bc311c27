package interop

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
)

// Station is one end of a frame.
type Station struct {
	MAC  inet.MAC
	IP   inet.Addr
	Port uint16
}

// part is bytes of a frame without a VLAN tag.
type part struct{ at, n int }

// lowerPart is a named part of the headers below the protocol's.
type lowerPart struct {
	name string
	part
}

// lowerParts are all of them, in the order of the frame.
var lowerParts = []lowerPart{
	{"ether.dst", part{0, 6}}, {"ether.src", part{6, 6}}, {"ether.type", part{12, 2}},
	{"ip.version", part{14, 1}}, {"ip.tos", part{15, 1}}, {"ip.length", part{16, 2}}, {"ip.id", part{18, 2}}, {"ip.flags", part{20, 2}},
	{"ip.ttl", part{22, 1}}, {"ip.protocol", part{23, 1}}, {"ip.checksum", part{24, 2}}, {"ip.src", part{26, 4}}, {"ip.dst", part{30, 4}},
	{"udp.src", part{34, 2}}, {"udp.dst", part{36, 2}}, {"udp.length", part{38, 2}}, {"udp.checksum", part{40, 2}},
}

// lower is the part of a name.
func lower(name string) (part, bool) {
	for _, p := range lowerParts {
		if p.name == name {
			return p.part, true
		}
	}
	return part{}, false
}

// text is a part of a frame as people write it.
func (p part) text(frame []byte) string {
	switch b := frame[p.at : p.at+p.n]; p.n {
	case 6:
		return inet.MAC(b).String()
	case 4:
		return inet.Addr(b).String()
	default:
		return hex.EncodeToString(b)
	}
}

// scope is what a case knows while it runs.
type scope struct {
	o     *Options
	s     *Suite
	first int // slot
	vars  map[string]uint64
	last  int // the worker that sent last
	past  past
	// lastPort is the UDP source port of the last frame sent; what SwitchML's replies go to.
	lastPort uint16
	lastDst  uint16
}

// unbound is a value that an expected frame may have any of, and that is remembered then.
type unbound struct {
	name  string
	field *layout.Field
	base  int
}

// built is a frame and what of it is compared.
type built struct {
	frame []byte
	mask  []byte // 0xff: compared
	free  []unbound
	what  string // in words, for reports
	body  string // name of the body, if there is one
}

// value is a number in a description; name is set when it is a variable that has no value yet.
func (sc *scope) value(x any, f *layout.Field) (v uint64, name string, err error) {
	switch x := x.(type) {
	case uint64:
		return x, "", nil
	case int64:
		return uint64(x), "", nil
	case int:
		return uint64(x), "", nil
	case string:
		if !strings.HasPrefix(x, "$") {
			if f == nil {
				return 0, "", fmt.Errorf("%q is no number", x)
			}
			v, err := f.Number(x)
			return v, "", err
		}
		return sc.sum(x)
	}
	return 0, "", fmt.Errorf("%v is neither a number nor a word", x)
}

// sum is what "$name", "$name+number" or "$name+$other*number" is worth; the name is that of a variable without a value.
func (sc *scope) sum(text string) (v uint64, unknown string, err error) {
	for term := range strings.SplitSeq(text, "+") {
		name, times, _ := strings.Cut(term, "*")
		one, many := uint64(0), uint64(1)
		if rest, ok := strings.CutPrefix(name, "$"); ok {
			if one, ok = sc.vars[rest]; !ok {
				return 0, rest, nil
			}
		} else if _, err := fmt.Sscan(name, &one); err != nil {
			return 0, "", fmt.Errorf("%q: $name, $name+number or $name+$other*number", text)
		}
		if times != "" {
			if _, err := fmt.Sscan(times, &many); err != nil {
				return 0, "", fmt.Errorf("%q: $name, $name+number or $name+$other*number", text)
			}
		}
		v += one * many
	}
	return v, "", nil
}

// with fills in what f leaves out from base.
func (f Frame) with(base *Frame) Frame {
	fields := map[string]any{}
	for k, v := range base.Fields {
		fields[k] = v
	}
	for k, v := range f.Fields {
		fields[k] = v
	}
	f.Fields = fields
	if f.IP == nil {
		f.IP = base.IP
	}
	if f.UDP == nil {
		f.UDP = base.UDP
	}
	f.Any = append(append([]string(nil), base.Any...), f.Any...)
	return f
}

func (sc *scope) build(f Frame, expected bool) (*built, error) {
	if expected {
		f = f.with(&sc.s.Expect)
	} else {
		f = f.with(&sc.s.Send)
	}
	if f.Hex != "" {
		return sc.buildHex(&f)
	}
	nic := sc.o.NIC
	nic.Port = sc.s.Port
	var src, dst Station
	rank := 0
	if expected {
		rank = *f.To
		src, dst = nic, sc.worker(rank)
		if sc.lastPort != 0 {
			dst.Port, src.Port = sc.lastPort, sc.lastDst
		}
	} else {
		rank = *f.From
		src, dst = sc.worker(rank), nic
	}
	l := sc.s.layout
	b := &built{what: fmt.Sprintf("from worker %d", rank), body: f.Body}
	if expected {
		b.what = fmt.Sprintf("to worker %d", rank)
	}
	head := l.Base() + l.Header
	payload, err := sc.payload(&f)
	if err != nil {
		return nil, err
	}
	b.frame = append(make([]byte, head), payload...)
	b.mask = make([]byte, len(b.frame))
	for i := range b.mask {
		b.mask[i] = 0xff
	}
	for w := sc.s.Word; w > 0 && (l.Header+len(payload))%w != 0; {
		payload = append(payload, 0)
		b.frame, b.mask = append(b.frame, 0), append(b.mask, 0)
	}
	if l.EtherType != 0 {
		inet.PutEthernet(b.frame, dst.MAC, src.MAC, l.EtherType)
		changeEther(b.frame, f.Ether)
	} else {
		putLower(b.frame, &f, &src, &dst)
	}
	if err := sc.putFields(b, &f, rank, len(payload), expected); err != nil {
		return nil, err
	}
	if !expected && l.EtherType == 0 {
		if err := finishLower(b.frame, &f); err != nil {
			return nil, err
		}
		sc.last, sc.lastPort, sc.lastDst = rank, binary.BigEndian.Uint16(b.frame[34:]), binary.BigEndian.Uint16(b.frame[36:])
	}
	if expected && l.EtherType == 0 {
		inet.SetIPv4Checksum(b.frame[14:])
	}
	b.shape(&f)
	return b, nil
}

func (sc *scope) worker(r int) Station {
	w := DefaultWorker(r)
	if r < len(sc.o.Workers) {
		w = sc.o.Workers[r]
	}
	if sc.s.WorkerPort != 0 {
		w.Port = sc.s.WorkerPort
	}
	return w
}

// putFields writes header and body, and takes what is left open out of the mask.
func (sc *scope) putFields(b *built, f *Frame, rank, payload int, expected bool) error {
	l := sc.s.layout
	base := l.Base()
	for i := range l.Fields {
		x := &l.Fields[i]
		switch {
		case x.Fixed != nil:
			x.Put(b.frame, base, *x.Fixed)
		case x.Reply != nil && expected:
			x.Put(b.frame, base, *x.Reply)
		case x.Meaning == layout.Length:
			x.Put(b.frame, base, uint64(payload))
		case x.Meaning == layout.Worker:
			x.Put(b.frame, base, workerValue(x, uint64(rank), false))
		case x.Meaning == layout.Size && payload == 256:
			x.Put(b.frame, base, 1)
		case x.Meaning == layout.Size && payload == 1024:
			x.Put(b.frame, base, 3)
		}
	}
	if x := sc.s.rest[f.Body]; x != nil {
		x.Put(b.frame, base+l.Header, uint64(payload-sc.s.bodyLen(f.Body)))
	}
	for name, raw := range f.Fields {
		x, at := sc.s.field(name), base
		if x == nil {
			x, at = sc.s.bodyField(f.Body, name), base+l.Header
		}
		if x == nil {
			continue // of a body that this frame has not
		}
		v, unknown, err := sc.value(raw, x)
		if err != nil {
			return err
		}
		if unknown != "" {
			if !expected {
				return fmt.Errorf("field %s: $%s has no value", name, unknown)
			}
			b.free = append(b.free, unbound{unknown, x, at})
			x.Put(b.mask, at, 0)
			continue
		}
		switch x.Meaning {
		case layout.Slot:
			v += uint64(sc.first)
		case layout.Worker:
			v = workerValue(x, v, f.Fields["kind"] == "result")
		}
		if x.Reply != nil && expected {
			v = *x.Reply
		}
		x.Put(b.frame, at, v)
	}
	for _, name := range f.Any {
		p, ok := lower(name)
		x := sc.s.field(name)
		switch {
		case ok && l.EtherType == 0:
			clear(b.mask[p.at : p.at+p.n])
			if strings.HasPrefix(name, "ip.") {
				clear(b.mask[24:26]) // the checksum goes with it
			}
		case x != nil:
			x.Put(b.mask, base, 0)
		case name == "values" || name == "body":
			clear(b.mask[base+l.Header:])
		default:
			if x = sc.s.bodyField(f.Body, name); x != nil {
				x.Put(b.mask, base+l.Header, 0)
			}
		}
	}
	return nil
}

// workerValue is a rank, or in a result the number of contributions, as the field has it.
func workerValue(x *layout.Field, v uint64, result bool) uint64 {
	switch {
	case !x.OneHot:
		return v
	case result:
		return 1<<v - 1
	}
	return 1 << v
}

// bodyLen is where a body's last field ends.
func (s *Suite) bodyLen(name string) (n int) {
	for _, x := range s.bodies[name] {
		n = max(n, x.Offset+(x.Width+7)/8)
	}
	return n
}

// payload is what follows the header.
func (sc *scope) payload(f *Frame) ([]byte, error) {
	if f.Body != "" {
		n := sc.s.bodyLen(f.Body)
		tail, err := hex.DecodeString(strings.ReplaceAll(f.Tail, " ", ""))
		if err != nil {
			return nil, fmt.Errorf("tail: %w", err)
		}
		return append(append(make([]byte, n), f.encoded...), tail...), nil
	}
	if f.Values == nil {
		b, err := hex.DecodeString(strings.ReplaceAll(f.Tail, " ", ""))
		if err != nil {
			return nil, fmt.Errorf("tail: %w", err)
		}
		return b, nil
	}
	n := f.Elements
	if n == 0 {
		n = sc.o.Elements
	}
	return f.Values.bytes(n, sc.s.layout.Payload.Little)
}

// at is element i.
func (v *Values) at(i int) int64 {
	if i < len(v.List) {
		return v.List[i]
	}
	return v.Start + int64(i)*v.Step
}

// bytes are n values as they stand on the wire.
func (v *Values) bytes(n int, little bool) (out []byte, err error) {
	for i := range n {
		x := v.at(i)
		var word uint64
		size := 4
		switch v.Type {
		case "", "int32":
			word = uint64(uint32(x))
		case "int64":
			word, size = uint64(x), 8
		case "float32":
			word = uint64(math.Float32bits(float32(x)))
		case "float64":
			word, size = math.Float64bits(float64(x)), 8
		default:
			return nil, fmt.Errorf("values of type %q: int32, int64, float32 or float64", v.Type)
		}
		var b [8]byte
		if little {
			binary.LittleEndian.PutUint64(b[:], word)
			out = append(out, b[:size]...)
		} else {
			binary.BigEndian.PutUint64(b[:], word)
			out = append(out, b[8-size:]...)
		}
	}
	return out, nil
}

func appendFloat32(b []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
}
