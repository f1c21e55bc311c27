package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Element is an element type that these files may hold. A uint16 is the bits of a float16.
type Element interface {
	int32 | int64 | int8 | float32 | float64 | uint16
}

// descr gives NumPy's name of T, little-endian, and the bytes of one.
func descr[T Element]() (name string, size int) {
	switch any(*new(T)).(type) {
	case int64:
		return "<i8", 8
	case int8:
		return "|i1", 1
	case float32:
		return "<f4", 4
	case float64:
		return "<f8", 8
	case uint16:
		return "<f2", 2
	}
	return "<i4", 4
}

// step is how much is read or written at a time, in bytes: what a lying header
// can cost.
const step = 1 << 16

// Read reads one array, flattened. The file's type must be T's ("<f4" for float32;
// no conversion is made, since a silent one would change the sums): another type
// gives an error that wraps [ErrType], a damaged file one that wraps [ErrFormat].
// Bytes after the array are left unread.
func Read[T Element](r io.Reader) ([]T, error) {
	h, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}
	want, size := descr[T]()
	if h.Descr != want {
		return nil, fmt.Errorf("%w: the file holds %q, not %q", ErrType, h.Descr, want)
	}
	out := make([]T, 0, min(h.Count, step/size))
	buf := make([]byte, step)
	for len(out) < h.Count {
		n := min(h.Count-len(out), step/size)
		if got, err := io.ReadFull(r, buf[:size*n]); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil, fmt.Errorf("%w: %d elements promised, %d there", ErrFormat, h.Count, len(out)+got/size)
			}
			return nil, fmt.Errorf("read element %d: %w", len(out)+got/size, err)
		}
		k := len(out)
		out = slices.Grow(out, n)[:k+n]
		if _, err := binary.Decode(buf[:size*n], binary.LittleEndian, out[k:]); err != nil {
			return nil, fmt.Errorf("element %d: %w", k, err)
		}
	}
	return out, nil
}

// Write writes v as a one-dimensional array, version 1.0.
func Write[T Element](w io.Writer, v []T) error {
	name, size := descr[T]()
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", name, len(v))
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
	buf := make([]byte, 0, min(step, size*len(v)))
	for at := 0; at < len(v); {
		n := min(len(v)-at, step/size)
		buf, err := binary.Append(buf[:0], binary.LittleEndian, v[at:at+n])
		if err != nil {
			return fmt.Errorf("element %d: %w", at, err)
		}
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write .npy data at element %d: %w", at, err)
		}
		at += n
	}
	return nil
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

// Stat reads the header of the file at path.
func Stat(path string) (Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	h, err := ReadHeader(bufio.NewReader(f))
	if err != nil {
		return Header{}, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
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
