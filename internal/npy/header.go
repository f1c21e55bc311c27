package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// MaxHeader is the longest header accepted, in bytes. A header names one type
// and one shape; NumPy itself writes 118 bytes.
const MaxHeader = 1 << 16

// maxDims is NumPy's own limit on dimensions (NPY_MAXDIMS).
const maxDims = 64

const magic = "\x93NUMPY"

// Errors that a caller may want to tell apart; they are wrapped with detail.
var (
	// ErrFormat: not an .npy file, or a damaged one.
	ErrFormat = errors.New("not a valid .npy file")
	// ErrType: a valid file that holds another element type.
	ErrType = errors.New("unsupported element type")
)

// Header is what an .npy file says of itself.
type Header struct {
	// Descr is the element type in NumPy's notation, for example "<f4".
	Descr string
	// Fortran is true when the data is in column-major order. The flattened
	// order is then that of the file, not that of numpy.ravel.
	Fortran bool
	// Shape has one entry a dimension; none for a scalar.
	Shape []int
	// Count is the product of Shape: the number of elements.
	Count int
}

// ReadHeader reads the magic, the version and the header, and leaves r at the
// first byte of data. Errors wrap [ErrFormat], or are those of r.
func ReadHeader(r io.Reader) (Header, error) {
	var pre [8]byte
	if _, err := io.ReadFull(r, pre[:]); err != nil {
		return Header{}, short("magic", err)
	}
	if string(pre[:6]) != magic {
		return Header{}, fmt.Errorf("%w: magic is %q", ErrFormat, pre[:6])
	}
	var n int
	switch pre[6] {
	case 1:
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return Header{}, short("header length", err)
		}
		n = int(binary.LittleEndian.Uint16(b[:]))
	case 2:
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return Header{}, short("header length", err)
		}
		v := binary.LittleEndian.Uint32(b[:])
		if v > MaxHeader {
			return Header{}, fmt.Errorf("%w: header of %d bytes, at most %d are accepted", ErrFormat, v, MaxHeader)
		}
		n = int(v)
	default:
		return Header{}, fmt.Errorf("%w: version %d.%d, 1.0 and 2.0 are known", ErrFormat, pre[6], pre[7])
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return Header{}, short("header", err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return Header{}, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	return h, nil
}

func short(what string, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: file ends inside its %s", ErrFormat, what)
	}
	return fmt.Errorf("read %s: %w", what, err)
}

// parseHeader reads the dictionary literal of a header: exactly the keys descr,
// fortran_order and shape, in any order, each once.
func parseHeader(text string) (Header, error) {
	p := parser{s: text}
	var h Header
	seen := map[string]bool{}
	if err := p.expect('{'); err != nil {
		return h, err
	}
	for !p.accept('}') {
		key, err := p.str()
		if err != nil {
			return h, err
		}
		if seen[key] {
			return h, fmt.Errorf("key %q twice", key)
		}
		seen[key] = true
		if err := p.expect(':'); err != nil {
			return h, err
		}
		switch key {
		case "descr":
			h.Descr, err = p.str()
		case "fortran_order":
			h.Fortran, err = p.boolean()
		case "shape":
			h.Shape, err = p.shape()
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return h, err
		}
		if p.accept(',') {
			continue
		}
		if err := p.expect('}'); err != nil {
			return h, err
		}
		break
	}
	p.space()
	if p.i != len(p.s) {
		return h, fmt.Errorf("%q after the dictionary", clip(p.s[p.i:]))
	}
	if len(seen) != 3 {
		return h, errors.New("descr, fortran_order and shape must all be there")
	}
	h.Count = 1
	for _, d := range h.Shape {
		if d == 0 {
			h.Count = 0
			return h, nil
		}
	}
	for _, d := range h.Shape {
		if h.Count > math.MaxInt/16/d {
			return h, fmt.Errorf("shape %v has too many elements", h.Shape)
		}
		h.Count *= d
	}
	return h, nil
}

func clip(s string) string {
	if len(s) > 32 {
		return s[:32]
	}
	return s
}

type parser struct {
	s string
	i int
}

func (p *parser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *parser) accept(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) expect(c byte) error {
	if p.accept(c) {
		return nil
	}
	return fmt.Errorf("want %q at %d, have %q", c, p.i, clip(p.s[p.i:]))
}

// str reads a quoted string. Escapes do not occur in the keys and types that
// are accepted, so a backslash is refused.
func (p *parser) str() (string, error) {
	p.space()
	if p.i >= len(p.s) || (p.s[p.i] != '\'' && p.s[p.i] != '"') {
		return "", fmt.Errorf("want a string at %d, have %q", p.i, clip(p.s[p.i:]))
	}
	quote := p.s[p.i]
	rest := p.s[p.i+1:]
	end := strings.IndexByte(rest, quote)
	if end < 0 {
		return "", fmt.Errorf("string at %d does not end", p.i)
	}
	if strings.IndexByte(rest[:end], '\\') >= 0 {
		return "", fmt.Errorf("escape in the string at %d", p.i)
	}
	p.i += end + 2
	return rest[:end], nil
}

func (p *parser) boolean() (bool, error) {
	p.space()
	for word, v := range map[string]bool{"True": true, "False": false} {
		if strings.HasPrefix(p.s[p.i:], word) {
			p.i += len(word)
			return v, nil
		}
	}
	return false, fmt.Errorf("want True or False at %d, have %q", p.i, clip(p.s[p.i:]))
}

func (p *parser) shape() ([]int, error) {
	if err := p.expect('('); err != nil {
		return nil, err
	}
	var shape []int
	for !p.accept(')') {
		start := p.i
		for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
			p.i++
		}
		d, err := strconv.Atoi(p.s[start:p.i])
		if err != nil {
			return nil, fmt.Errorf("dimension at %d: %q", start, clip(p.s[start:]))
		}
		if p.i < len(p.s) && p.s[p.i] == 'L' { // written by Python 2
			p.i++
		}
		if shape = append(shape, d); len(shape) > maxDims {
			return nil, fmt.Errorf("more than %d dimensions", maxDims)
		}
		if p.accept(',') {
			continue
		}
		if len(shape) == 1 {
			return nil, errors.New("a shape of one dimension needs a comma")
		}
		if err := p.expect(')'); err != nil {
			return nil, err
		}
		break
	}
	return shape, nil
}
