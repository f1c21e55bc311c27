package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gradnic/internal/cpu"
)

func TestInt32BE(t *testing.T) {
	a, b := []byte{0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}
	acc, out := make([]int32, 2), make([]byte, 8)
	SetInt32BE(acc, a)
	if acc[0] != 1 || acc[1] != math.MaxInt32 {
		t.Fatalf("set: %v", acc)
	}
	if n := AddInt32BE(acc, b); n != 1 || acc[0] != 0 || acc[1] != math.MinInt32 {
		t.Fatalf("add: %v, %d wrapped", acc, n)
	}
	PutInt32BE(out, acc)
	if want := "\x00\x00\x00\x00\x80\x00\x00\x00"; string(out) != want {
		t.Fatalf("put: % x", out)
	}
	if n := AddPutInt32BE(out, acc, b); n != 0 || string(out) != "\xff\xff\xff\xff\x80\x00\x00\x01" || acc[1] != math.MinInt32+1 {
		t.Fatalf("add and put: % x, %v, %d wrapped", out, acc, n)
	}
}

func TestForRefuses(t *testing.T) {
	for _, s := range []Spec{{Type: types}, {Order: orders}, {Op: ops}, {Policy: policies}} {
		if _, err := For[int32](s); err == nil {
			t.Errorf("%v: no error", s)
		}
	}
	if _, err := For[float32](Spec{Type: Int8}); err == nil || !strings.Contains(err.Error(), "slots of int32") {
		t.Errorf("int8 in float32: %v", err)
	}
	for _, s := range specs() {
		made := 0
		for _, err := range []error{errorOf(For[int32](s)), errorOf(For[int64](s)), errorOf(For[float32](s)), errorOf(For[float64](s))} {
			if err == nil {
				made++
			}
		}
		if made != 1 {
			t.Errorf("%v has loops for %d slot types", s, made)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// TestLengthsMustMatch: a loop never reads or writes past the shorter buffer, it refuses.
func TestLengthsMustMatch(t *testing.T) {
	o := testOps[float32](t, Spec{Type: BFloat16}, selected)
	ints := testOps[float32](t, Spec{Type: BFloat16, Op: Min}, selected)
	acc, ok, short, long := make([]float32, 8), make([]byte, 16), make([]byte, 15), make([]byte, 18)
	for name, f := range map[string]func(){
		"set":             func() { o.Set(acc, short) },
		"set long":        func() { o.Set(acc, long) },
		"set nothing":     func() { o.Set(acc, nil) },
		"fold":            func() { o.Fold(acc, short) },
		"put":             func() { o.Put(short, acc) },
		"fold, put":       func() { o.FoldPut(ok, acc, short) },
		"fold, put long":  func() { o.FoldPut(long, acc, ok) },
		"peak":            func() { FoldPeak(o, acc, long) },
		"peak of a min":   func() { FoldPeak(ints, acc, ok) },
		"mean of nothing": func() { o.Divide(acc, 0) },
		"int32":           func() { AddInt32BE(make([]int32, 3), ok) },
	} {
		func() {
			defer func() {
				if msg := fmt.Sprint(recover()); !strings.HasPrefix(msg, "kernel: ") {
					t.Errorf("%s: panic %v", name, msg)
				}
			}()
			f()
		}()
	}
	if n := o.Set(nil, nil) + o.Fold(nil, nil) + o.Put(nil, nil) + o.FoldPut(nil, nil, nil); n != 0 {
		t.Errorf("empty slots flag %d", n)
	}
}

func TestNoAllocations(t *testing.T) {
	for _, tier := range append(tiers(t), cpu.Off) {
		for _, s := range specs() {
			forSlot(s,
				func() { checkAllocations[int32](t, s, tier) },
				func() { checkAllocations[int64](t, s, tier) },
				func() { checkAllocations[float32](t, s, tier) },
				func() { checkAllocations[float64](t, s, tier) })
		}
	}
}

func checkAllocations[A Element](t *testing.T, s Spec, tier cpu.Tier) {
	o := testOps[A](t, s, tier)
	acc, src, dst := make([]A, 301), make([]byte, 301*s.Type.Bytes()), make([]byte, 301*s.Type.Bytes())
	if n := testing.AllocsPerRun(10, func() {
		o.Set(acc, src)
		o.Fold(acc, src)
		o.Put(dst, acc)
		o.FoldPut(dst, acc, src)
		o.Divide(acc, 3)
	}); n != 0 {
		t.Errorf("%v at %v: %v allocations", s, tier, n)
	}
}

// TestForcedLevel runs this test binary again under each word of the environment and looks at what it says and sums.
func TestForcedLevel(t *testing.T) {
	const marker = "GRADNIC_KERNEL_TEST_CHILD"
	if os.Getenv(marker) != "" {
		name, err := Selected()
		acc, src := make([]int32, 100), make([]byte, 400)
		for i := range acc {
			acc[i] = math.MaxInt32
			binary.BigEndian.PutUint32(src[4*i:], uint32(i))
		}
		fmt.Printf("level=%s err=%v assembly=%v wrapped=%d last=%d\n", name, err, int32BE.loops.step != 0, AddInt32BE(acc, src), acc[99])
		return
	}
	machine := best().String()
	atMost := func(tier cpu.Tier) string { return min(tier, best()).String() }
	for _, c := range []struct {
		word, level string
		complains   bool
	}{
		{"", machine, false},
		{"off", "off", false},
		{"avx2", atMost(cpu.AVX2), best() < cpu.AVX2},
		{"avx512", atMost(cpu.AVX512), best() < cpu.AVX512},
		{"avx-512", "off", true},
		{"AVX2", "off", true},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestForcedLevel$")
		cmd.Env = append(os.Environ(), marker+"=1", cpu.Environment+"="+c.word)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", c.word, err, out)
		}
		line, _, _ := strings.Cut(string(out), "\n")
		want := fmt.Sprintf("level=%s err=", c.level)
		tail := fmt.Sprintf(" assembly=%v wrapped=99 last=%d", c.level != "off", math.MinInt32+98)
		if !strings.HasPrefix(line, want) || !strings.HasSuffix(line, tail) || strings.Contains(line, "err=<nil>") == c.complains {
			t.Errorf("%s=%q: %s; want %s... %s, complaint %v", cpu.Environment, c.word, line, want, tail, c.complains)
		}
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		asked string
		got   cpu.Tier
		part  string // "" no error
	}{
		{"", cpu.Off, ""},
		{"avx2", cpu.AVX2, ""},
		{"off", cpu.Off, ""},
		{"avx512", cpu.AVX2, "has only avx2"},
		{"avx2", cpu.Off, "has only off"},
		{"sse", cpu.Off, "unknown level"},
	} {
		err := explain(c.asked, c.got)
		if (err == nil) != (c.part == "") || err != nil && !strings.Contains(err.Error(), c.part) {
			t.Errorf("%q on %v: %v, want %q", c.asked, c.got, err, c.part)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		fmt.Sprint(Spec{}): "sum big-endian int32 propagate",
		fmt.Sprint(Spec{BFloat16, LittleEndian, Max, Saturate}): "max little-endian bfloat16 saturate",
		fmt.Sprint(types, orders, ops, policies):                "Type(7) ByteOrder(2) Op(3) Policy(2)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzLoops lets a fuzzer choose the spec and the bytes of slot and wire, and compares the assembly with Go.
func FuzzLoops(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint8(3), []byte("\x7f\xff\xff\xff\x00\x00\x00\x01"))
	f.Add(uint8(3), uint8(1), uint8(0), []byte("\x00\x00\x80\x7f\x01\x00\x80\xff\x00\x00\xc0\x7f"))
	f.Add(uint8(5), uint8(5), uint8(63), []byte("\x00\x7c\xff\x7b\x01\x00\x00\x80"))
	have := tiers(f)
	all := specs()
	f.Fuzz(func(t *testing.T, which, again, shift uint8, data []byte) {
		s := all[(int(which)+int(again)<<8)%len(all)]
		forSlot(s,
			func() { fuzzLoops[int32](t, s, have, int(shift%64), data) },
			func() { fuzzLoops[int64](t, s, have, int(shift%64), data) },
			func() { fuzzLoops[float32](t, s, have, int(shift%64), data) },
			func() { fuzzLoops[float64](t, s, have, int(shift%64), data) })
	})
}

func fuzzLoops[A Element](t *testing.T, s Spec, have []cpu.Tier, shift int, data []byte) {
	size, slotSize := s.Type.Bytes(), slotBytes[A]()
	n := min(len(data)/(size+slotSize), 4096)
	acc := make([]A, n)
	plain := map[kind]Type{kindInt32: Int32, kindInt64: Int64, kindFloat32: Float32, kindFloat64: Float64}[kindOf[A]()]
	decode(Spec{Type: plain, Order: LittleEndian}, acc, data[:n*slotSize])
	src := data[n*slotSize:][:n*size]
	want := run(t, testOps[A](t, s, cpu.Off), acc, src, shift)
	for _, tier := range have {
		if err := same(run(t, testOps[A](t, s, tier), acc, src, shift), want); err != nil {
			t.Fatalf("%v at %v, %d elements, %d bytes after an address: %v", s, tier, n, shift, err)
		}
	}
}
