package interop

import (
	"errors"
	"fmt"
	"io"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
)

// ShowCapture writes the fields of each frame of a capture, of count frames at most (0: all). It is an error when a frame
// of the layout's encapsulation does not decode, or none is there.
func ShowCapture(w io.Writer, l *layout.Layout, path string, count int) error {
	c, err := openCapture(path)
	if err != nil {
		return err
	}
	defer c.close()
	bad, foreign, n := 0, 0, 0
	for count == 0 || n < count {
		data, ci, err := c.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: frame %d: %w", path, n+1, err)
		}
		n++
		d, f := l.Decode(data)
		switch {
		case f == layout.Foreign:
			foreign++
			continue
		case f != layout.OK:
			bad++
		}
		if err := showFrame(w, l, n, ci.Length, data, &d, f); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "%d frames: %d of layout %s, %d of them not right, %d of others\n", n, n-foreign, l.Name, bad, foreign); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%s: %d frames of %s do not decode by layout %s", path, bad, l.Where(), l.Name)
	}
	if n == foreign {
		return fmt.Errorf("%s: no frame of %s in %d", path, l.Where(), n)
	}
	return nil
}

func showFrame(w io.Writer, l *layout.Layout, number, length int, data []byte, d *layout.Decoded, f layout.Fault) error {
	state := ""
	if f != layout.OK {
		state = ": " + f.String()
	}
	_, err := fmt.Fprintf(w, "frame %d, %d bytes, %v > %v%s\n", number, length, inet.MAC(data[6:12]), inet.MAC(data[:6]), state)
	show := func(values []layout.Value, base int) {
		for _, v := range values {
			if err != nil {
				return
			}
			place := fmt.Sprintf("%d", base+v.Field.Offset)
			if v.Field.Bit > 0 || v.Field.Width%8 != 0 {
				place = fmt.Sprintf("%d.%d", base+v.Field.Offset, v.Field.Bit)
			}
			meaning := ""
			if v.Field.Meaning != layout.None {
				meaning = "(" + v.Field.Meaning.String() + ")"
			}
			_, err = fmt.Fprintf(w, "  %-7s %-16s %s %s\n", place, v.Field.Name, v.Text, meaning)
		}
	}
	show(d.Fields, l.Base())
	if err == nil && f != layout.Short && f != layout.BadLength {
		_, err = fmt.Fprintf(w, "  %-7d %-16s %s\n", l.Base()+l.Header, "payload", l.PayloadText(d))
	}
	show(d.Trailer, l.Base()+l.Header+len(d.Payload))
	return err
}
