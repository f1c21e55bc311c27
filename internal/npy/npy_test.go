package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// file builds an .npy file by hand.
func file(version byte, header string, data []byte) []byte {
	b := []byte("\x93NUMPY")
	b = append(b, version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	b = append(b, header...)
	return append(b, data...)
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ints := rapid.SliceOf(rapid.Int32()).Draw(t, "ints")
		var b bytes.Buffer
		if err := WriteInt32(&b, ints); err != nil {
			t.Fatal(err)
		}
		if n := b.Len() - 4*len(ints); n%64 != 0 {
			t.Fatalf("data begins at %d, not a multiple of 64", n)
		}
		back, err := ReadInt32(&b)
		if err != nil || !slices.Equal(ints, back) {
			t.Fatalf("%v, want %v: %v", back, ints, err)
		}
		// Floats by their bits, so that NaNs count.
		floats := make([]float32, len(ints))
		for i, x := range ints {
			floats[i] = math.Float32frombits(uint32(x))
		}
		b.Reset()
		if err := WriteFloat32(&b, floats); err != nil {
			t.Fatal(err)
		}
		fback, err := ReadFloat32(&b)
		if err != nil || len(fback) != len(ints) {
			t.Fatalf("%d floats, want %d: %v", len(fback), len(ints), err)
		}
		for i := range fback {
			if math.Float32bits(fback[i]) != uint32(ints[i]) {
				t.Fatalf("float %d: bits %x, want %x", i, math.Float32bits(fback[i]), ints[i])
			}
		}
	})
}

func TestLargeArray(t *testing.T) {
	v := make([]int32, 3*step/4+7)
	for i := range v {
		v[i] = int32(i * 2654435761)
	}
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := Save(path, v); err != nil {
		t.Fatal(err)
	}
	back, err := Load[int32](path)
	if err != nil || !slices.Equal(v, back) {
		t.Fatalf("%d elements back: %v", len(back), err)
	}
	if _, err := Load[float32](path); !errors.Is(err, ErrType) {
		t.Errorf("loaded int32 as float32: %v", err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, 0), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load[int32](path); !errors.Is(err, ErrFormat) {
		t.Errorf("loaded a file with a byte too many: %v", err)
	}
}

func TestHeaders(t *testing.T) {
	data := []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0}
	const good = "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }\n"
	for _, c := range []struct {
		name    string
		file    []byte
		want    int // elements, -1 for an error
		errKind error
	}{
		{"version 1", file(1, good, data), 6, nil},
		{"version 2", file(2, good, data), 6, nil},
		{"two dimensions", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3)}`, data), 6, nil},
		{"two dimensions, comma", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3,), }`, data), 6, nil},
		{"column-major", file(1, `{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3)}`, data), 6, nil},
		{"scalar", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': ()}`, data), 1, nil},
		{"empty", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (0, 7)}`, nil), 0, nil},
		{"empty, absurd", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775807, 0)}`, nil), 0, nil},
		{"other order, double quotes", file(1, `{"shape":(6,),"fortran_order":False,"descr":"<i4"}`, data), 6, nil},
		{"Python 2's longs", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (6L,), }`, data), 6, nil},
		{"big endian", file(1, `{'descr': '>i4', 'fortran_order': False, 'shape': (6,), }`, data), -1, ErrType},
		{"objects", file(1, `{'descr': '|O', 'fortran_order': False, 'shape': (6,), }`, data), -1, ErrType},
		{"floats", file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }`, data), -1, ErrType},
		{"version 3", file(3, good, data), -1, ErrFormat},
		{"no magic", []byte("PK\x03\x04aaaaaaaaaaaaaaa"), -1, ErrFormat},
		{"nothing", nil, -1, ErrFormat},
		{"data short", file(1, good, data[:20]), -1, ErrFormat},
		{"data short inside an element", file(1, good, data[:23]), -1, ErrFormat},
		{"product overflows", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}`, data), -1, ErrFormat},
		{"dimension overflows", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}`, data), -1, ErrFormat},
		{"negative", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}`, data), -1, ErrFormat},
		{"not a tuple", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (6)}`, data), -1, ErrFormat},
		{"key twice", file(1, `{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (6,)}`, data), -1, ErrFormat},
		{"key missing", file(1, `{'descr': '<i4', 'shape': (6,)}`, data), -1, ErrFormat},
		{"key unknown", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (6,), 'x': 1}`, data), -1, ErrFormat},
		{"code", file(1, `{'descr': __import__('os'), 'fortran_order': False, 'shape': (6,)}`, data), -1, ErrFormat},
		{"trailing text", file(1, good+"x", data), -1, ErrFormat},
		{"string without end", file(1, `{'descr': '<i4`, data), -1, ErrFormat},
		{"65 dimensions", file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (`+strings.Repeat("1,", 65)+`)}`, data), -1, ErrFormat},
		{"header length lies", append([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), good...), -1, ErrFormat},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := ReadInt32(bytes.NewReader(c.file))
			if c.want < 0 {
				if !errors.Is(err, c.errKind) {
					t.Fatalf("error %v, want %v", err, c.errKind)
				}
				return
			}
			if err != nil || len(v) != c.want {
				t.Fatalf("%d elements, want %d: %v", len(v), c.want, err)
			}
			for i, x := range v {
				if x != int32(i+1) {
					t.Fatalf("element %d is %d", i, x)
				}
			}
		})
	}
}

// Every cut of a good file is an error, and never a panic.
func TestTruncated(t *testing.T) {
	var b bytes.Buffer
	if err := WriteFloat32(&b, []float32{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		if _, err := ReadFloat32(bytes.NewReader(b.Bytes()[:n])); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// A header that promises a terabyte must not cost one.
func TestPromisesCostNothing(t *testing.T) {
	f := file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }", make([]byte, 1000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ReadFloat32(bytes.NewReader(f)); !errors.Is(err, ErrFormat) {
		t.Fatalf("error %v", err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes allocated", got)
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestWriteErrors(t *testing.T) {
	for _, after := range []int{0, 200, step + 200} {
		if err := WriteFloat32(&failing{after}, make([]float32, step)); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("after %d bytes: %v", after, err)
		}
	}
	dir := t.TempDir()
	if err := Save(filepath.Join(dir, "no", "a.npy"), []int32{1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("saved to a missing directory: %v", err)
	}
}

// NumPy itself reads what is written here, and its files are read here.
func TestAgainstNumPy(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		t.Skipf("%s has no numpy: %v", python, err)
	}
	dir := t.TempDir()
	ours, theirs := filepath.Join(dir, "ours.npy"), filepath.Join(dir, "theirs.npy")
	v := []float32{0, -1.5, math.MaxFloat32, 1e-45, float32(math.Inf(-1))}
	if err := Save(ours, v); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("import numpy as n\na=n.load(%q)\nassert a.dtype==n.float32 and a.shape==(5,), a\nn.save(%q, n.stack([a,a]))\n", ours, theirs)
	if out, err := exec.Command(python, "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	back, err := Load[float32](theirs)
	if err != nil || !slices.Equal(back, append(slices.Clone(v), v...)) {
		t.Fatalf("%v: %v", back, err)
	}
	both := func(save, same string) {
		t.Helper()
		script := fmt.Sprintf("import numpy as n\na=n.load(%q)\nb=%s\nassert a.dtype==b.dtype and (a==b).all(), a\nn.save(%q, b)\n", ours, same, save)
		if out, err := exec.Command(python, "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, save := range []struct {
		same string
		pair func() error
	}{
		{"n.array([1.5,-2**60],n.float64)", pair(ours, theirs, []float64{1.5, -1 << 60})},
		{"n.array([1.5,-65504],n.float16)", pair(ours, theirs, []uint16{0x3e00, 0xfbff})},
		{"n.array([-2**63,7])", pair(ours, theirs, []int64{math.MinInt64, 7})},
		{"n.array([-128,127,3],n.int8)", pair(ours, theirs, []int8{-128, 127, 3})},
		{"n.array([-2**31],n.int32)", pair(ours, theirs, []int32{math.MinInt32})},
	} {
		if err := save.pair(); err != nil {
			t.Fatal(err)
		}
		both(theirs, save.same)
		if err := save.pair(); err != nil {
			t.Errorf("%s: %v", save.same, err)
		}
	}
}

// pair saves v to ours, and when theirs is there reads that, which must be the same and no other type.
func pair[T Element](ours, theirs string, v []T) func() error {
	saved := false
	return func() error {
		if !saved {
			saved = true
			return Save(ours, v)
		}
		got, err := Load[T](theirs)
		if err == nil && !slices.Equal(got, v) {
			err = fmt.Errorf("%v, want %v", got, v)
		}
		if h, serr := Stat(theirs); serr != nil || h.Count != len(v) {
			err = errors.Join(err, fmt.Errorf("%+v, %w", h, serr))
		}
		if _, other := Load[float32](theirs); !errors.Is(other, ErrType) {
			err = errors.Join(err, fmt.Errorf("read as float32: %w", other))
		}
		return err
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 4)))
	f.Add(file(2, "{'descr': '<i4', 'fortran_order': True, 'shape': (1, 2), }\n", make([]byte, 8)))
	f.Add(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n", nil))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ReadFloat32(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrType) {
				t.Fatalf("an error without a kind: %v", err)
			}
			return
		}
		if 4*len(v) > len(b) {
			t.Fatalf("%d elements from %d bytes", len(v), len(b))
		}
		var again bytes.Buffer
		if err := WriteFloat32(&again, v); err != nil {
			t.Fatal(err)
		}
		w, err := ReadFloat32(&again)
		if err != nil || len(w) != len(v) {
			t.Fatalf("second reading: %d of %d elements: %v", len(w), len(v), err)
		}
	})
}
