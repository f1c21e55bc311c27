package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestTextsAreEscaped(t *testing.T) {
	var s SVG
	s.Text(1, 2, "end", "<b>&")
	s.Line(0, 0, 1, 1, "#888")
	s.Bar(1, 2, 3, 4, "#123", `<"2">`)
	got := string(s.Done(100))
	for _, want := range []string{`viewBox="0 0 760 100"`, "&lt;b&gt;&amp;</text>", `<line x1="0.0"`, "<title>&lt;", `text-anchor="end"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	dec := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLabelsDoNotMeet(t *testing.T) {
	var taken []Box
	for i := range 12 { // a heap of points in one place
		b, _ := Place(300+float64(i%3), 150+float64(i%4), 90, taken)
		for _, other := range taken {
			if b.Meets(other) {
				t.Fatalf("label %d at %+v meets %+v", i, b, other)
			}
		}
		taken = append(taken, b)
	}
	if b, anchor := Place(Width-5, 100, 90, nil); anchor != "end" || b.X2 > Width {
		t.Errorf("a label at the right edge lies at %+v", b)
	}
}
