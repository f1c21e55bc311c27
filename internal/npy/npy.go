package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Element is an element type that these files may hold.
type Element interface{ float32 | int32 }

// descr gives NumPy's name of T, little-endian.
func descr[T Element]() string {
	var v any = *new(T)
	if _, ok := v.(float32); ok {
		return "<f4"
	}
	return "<i4"
}

// step is how much is read or written at a time, in bytes: what a lying header
// can cost.
const step = 1 << 16

// Read reads one array, flattened. The file's type must be T's ("<f4" or "<i4";
// no conversion is made, since a silent one would change the sums): another type
// gives an error that wraps [ErrType], a damaged file one that wraps [ErrFormat].
// Bytes after the array are left unread.
func Read[T Element](r io.Reader) ([]T, error) {
	h, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}
	if want := descr[T](); h.Descr != want {
		return nil, fmt.Errorf("%w: the file holds %q, not %q", ErrType, h.Descr, want)
	}
	out := make([]T, 0, min(h.Count, step/4))
	buf := make([]byte, step)
	for len(out) < h.Count {
		part := buf[:4*min(h.Count-len(out), step/4)]
		if n, err := io.ReadFull(r, part); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil, fmt.Errorf("%w: %d elements promised, %d there", ErrFormat, h.Count, len(out)+n/4)
			}
			return nil, fmt.Errorf("read element %d: %w", len(out)+n/4, err)
		}
		out = decode(out, part)
	}
	return out, nil
}

func decode[T Element](out []T, b []byte) []T {
	k := len(out)
	out = slices.Grow(out, len(b)/4)[:k+len(b)/4]
	switch s := any(out[k:]).(type) {
	case []float32:
		for i := range s {
			s[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []int32:
		for i := range s {
			s[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return out
}

// Write writes v as a one-dimensional array, version 1.0.
func Write[T Element](w io.Writer, v []T) error {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr[T](), len(v))
	// Magic, version, length, dictionary and a newline end on a multiple of 64.
	total := (len(magic) + 4 + len(dict) + 1 + 63) &^ 63
	head := make([]byte, total)
	for i := range head {
		head[i] = ' '
	}
	copy(head, magic)
	head[6], head[7] = 1, 0
	binary.LittleEndian.PutUint16(head[8:], uint16(total-10))
	copy(head[10:], dict)
	head[total-1] = '\n'
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write .npy header: %w", err)
	}
	buf := make([]byte, 0, min(step, 4*len(v)))
	for at := 0; at < len(v); {
		n := min(len(v)-at, step/4)
		buf = encode(buf[:0], v[at:at+n])
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write .npy data at element %d: %w", at, err)
		}
		at += n
	}
	return nil
}

func encode[T Element](b []byte, v []T) []byte {
	switch s := any(v).(type) {
	case []float32:
		for _, x := range s {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case []int32:
		for _, x := range s {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
	}
	return b
}

// ReadFloat32 reads an array of "<f4"; see [Read].
func ReadFloat32(r io.Reader) ([]float32, error) { return Read[float32](r) }

// ReadInt32 reads an array of "<i4"; see [Read].
func ReadInt32(r io.Reader) ([]int32, error) { return Read[int32](r) }

// WriteFloat32 writes an array of "<f4"; see [Write].
func WriteFloat32(w io.Writer, v []float32) error { return Write(w, v) }

// WriteInt32 writes an array of "<i4"; see [Write].
func WriteInt32(w io.Writer, v []int32) error { return Write(w, v) }

// Load reads the file at path. Unlike [Read] it refuses bytes after the array.
func Load[T Element](path string) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, step)
	v, err := Read[T](r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w: bytes after the array", path, ErrFormat)
	}
	return v, nil
}

// Save writes v to the file at path. A regular file appears, or is replaced, only
// when all of v is written; anything else, a pipe for example, is written to as it is.
func Save[T Element](path string, v []T) (err error) {
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(Write(f, v), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := Write(f, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
