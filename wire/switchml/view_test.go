package switchml

import (
	"bytes"
	"encoding/binary"
	"testing"

	"gradnic/wire/inet"
)

func payload(elements int) []byte {
	frame := make([]byte, FrameLen(elements))
	n := PutRequest(frame, Request{
		Worker:   Endpoint{MAC: inet.MAC{2}, IP: inet.Addr{10, 50, 0, 1}, Port: 4000},
		Switch:   Endpoint{MAC: inet.MAC{6}, IP: inet.Addr{10, 50, 0, 254}, Port: PortBase},
		Elements: elements, Job: 9, TSI: [4]byte{1, 2, 3, 4}, PoolIndex: PoolIndexOf(1, 0x2abc), E0: -3, E1: 127,
	})
	for i := range frame[ValuesOffset:n] {
		frame[ValuesOffset+i] = byte(i)
	}
	return frame[inet.PayloadOffset:n]
}

func TestView(t *testing.T) {
	for _, elements := range []int{64, 256} {
		b := payload(elements)
		v, f := Validate(b)
		if f != OK {
			t.Fatal(f)
		}
		e0, e1 := v.Exponents()
		if v.Elements() != elements || v.SizeCode().Elements() != elements || v.Job() != 9 || v.TSI() != [4]byte{1, 2, 3, 4} ||
			v.Set() != 1 || v.Slot() != 0x2abc || v.PoolIndex() != 0xaabc || e0 != -3 || e1 != 127 {
			t.Errorf("%d elements: view of %x", elements, b[:HeaderLen])
		}
		if len(v.Values()) != 4*elements || &v.Values()[0] != &b[10] {
			t.Errorf("%d elements: values are not bytes 10.. of the payload", elements)
		}
		// Bit 14 of the pool index and bit 3 of the first byte mean nothing.
		b[6] |= 0x40
		b[0] |= 0x08
		if v, f = Validate(b); f != OK || v.Slot() != 0x2abc || v.Set() != 1 || v.PoolIndex() != 0xeabc {
			t.Errorf("unused bits: %v, slot %#x set %d", f, v.Slot(), v.Set())
		}
	}
}

// One base packet, one mutation, one verdict.
func TestValidateMutations(t *testing.T) {
	first := func(v byte) func([]byte) []byte { return func(b []byte) []byte { b[0] = v; return b } }
	for _, c := range []struct {
		name   string
		mutate func([]byte) []byte
		want   Fault
	}{
		{"base", func(b []byte) []byte { return b }, OK},
		{"message type 0", first(0x01), BadType},
		{"message type 2", first(0x21), BadType},
		{"message type 15", first(0xf1), BadType},
		{"128 bytes", first(0x10), UnsupportedSize},
		{"512 bytes", first(0x12), UnsupportedSize},
		{"size 4", first(0x14), UnknownSize},
		{"size 5", first(0x15), UnknownSize},
		{"size 6", first(0x16), UnknownSize},
		{"size 7", first(0x17), UnknownSize},
		{"1024 bytes in 256", first(0x13), BadLength},
		{"one byte less", func(b []byte) []byte { return b[:len(b)-1] }, BadLength},
		{"one byte more", func(b []byte) []byte { return append(b, 0) }, BadLength},
		{"header only", func(b []byte) []byte { return b[:10] }, BadLength},
		{"one byte less than the header", func(b []byte) []byte { return b[:9] }, Short},
		{"nothing", func(b []byte) []byte { return nil }, Short},
		{"256 bytes in 1024", func([]byte) []byte { b := payload(256); b[0] = 0x11; return b }, BadLength},
	} {
		v, f := Validate(c.mutate(payload(64)))
		if f != c.want || (v == nil) != (f != OK) {
			t.Errorf("%s: %v (view %v), want %v", c.name, f, v != nil, c.want)
		}
	}
}

func TestValidateAtEveryLength(t *testing.T) {
	whole := payload(64)
	for n := range len(whole) {
		want := BadLength
		if n < HeaderLen {
			want = Short
		}
		if _, f := Validate(whole[:n:n]); f != want {
			t.Errorf("first %d bytes: %v, want %v", n, f, want)
		}
	}
}

func TestPorts(t *testing.T) {
	for port := range 1 << 16 {
		if got, want := IsPort(uint16(port)), port >= 48864 && port <= 48879; got != want {
			t.Errorf("port %d: %v", port, got)
		}
	}
}

func TestFaultNames(t *testing.T) {
	seen := map[string]bool{}
	for f := range NumFaults {
		s := Fault(f).String()
		if s == "" || seen[s] {
			t.Errorf("fault %d is called %q", f, s)
		}
		seen[s] = true
	}
	if s := Fault(NumFaults).String(); s != "unknown-fault" {
		t.Errorf("got %q", s)
	}
}

func FuzzValidate(f *testing.F) {
	f.Add(payload(64))
	f.Add(payload(256))
	f.Add(payload(64)[:9])
	f.Add([]byte{0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		v, fault := Validate(b)
		if fault != OK {
			if v != nil {
				t.Fatal("a view with a fault")
			}
			return
		}
		if b[0]>>4 != 1 || len(b) != 266 && len(b) != 1034 || v.Set()&^1 != 0 || v.Slot() >= Slots || len(v.Values()) != 4*v.Elements() {
			t.Fatalf("accepted %x", b[:HeaderLen])
		}
		// What was read, written again, is the same but for the unused bits.
		e0, e1 := v.Exponents()
		out := make([]byte, FrameLen(v.Elements()))
		PutReply(out, Reply{Elements: v.Elements(), Job: v.Job(), TSI: v.TSI(), PoolIndex: v.PoolIndex(), E0: e0, E1: e1})
		want := bytes.Clone(b[:HeaderLen])
		want[0] &^= 8
		binary.BigEndian.PutUint16(want[6:], v.PoolIndex()&^(1<<14))
		if !bytes.Equal(out[42:52], want) {
			t.Fatalf("%x became %x", want, out[42:52])
		}
	})
}
