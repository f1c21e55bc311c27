package layout

import (
	"embed"
	"fmt"

	"gradnic/internal/strictyaml"
)

// Layout is a header, compiled. It is not changed after Parse and may be used by several goroutines.
type Layout struct {
	Name, About string
	File        string // where it is from, for errors
	Rules       Rules
	// EtherType is that of a header directly behind Ethernet; 0: the header is behind UDP, to a port from FirstPort to LastPort.
	EtherType           uint16
	FirstPort, LastPort uint16
	// Header is its length in bytes.
	Header int
	Fields []Field
	// Trailer are fields behind the payload, with offsets from its end.
	Trailer []Field
	Payload Payload

	base  int // where the header starts in a frame: 14 or 42
	c     compiled
	by    [NumMeanings]*Field
	swap  bool // values have another byte order than the rules'
	size  int  // bytes of an element where the layout fixes the type; 0: the header's type says
	typ   uint64
	trail int    // bytes of the trailer
	job   uint64 // native: of all frames, when no field says
}

// Payload is what follows the header.
type Payload struct {
	Type     string // of the elements, "" when the header says
	Little   bool   // byte order of the elements
	Elements int    // 0: as many as come
}

//go:embed layouts/*.yaml
var layouts embed.FS

var shipped = strictyaml.Shipped{Kind: "layout", Files: layouts, Folder: "layouts"}

// Shipped are the names of the layouts that come with gradnic.
func Shipped() []string { return shipped.Names() }

// Source is the text of a shipped layout.
func Source(name string) ([]byte, error) { return shipped.Text(name) }

// Load returns the shipped layout of a name, or the one in a file when it has a slash or ends in .yaml.
func Load(name string) (*Layout, error) {
	file, text, err := shipped.Load(name)
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}

// Base is where the header starts in a frame: 14 behind Ethernet, 42 behind UDP.
func (l *Layout) Base() int { return l.base }

// Field returns the field of a name, nil when there is none.
func (l *Layout) Field(name string) *Field {
	for i := range l.Fields {
		if l.Fields[i].Name == name {
			return &l.Fields[i]
		}
	}
	return nil
}

// Of returns the field of a meaning, nil when there is none.
func (l *Layout) Of(m Meaning) *Field { return l.by[m] }

// Where is the encapsulation in words.
func (l *Layout) Where() string {
	switch {
	case l.EtherType != 0:
		return fmt.Sprintf("EtherType 0x%04x", l.EtherType)
	case l.FirstPort == l.LastPort:
		return fmt.Sprintf("UDP port %d", l.FirstPort)
	}
	return fmt.Sprintf("UDP ports %d to %d", l.FirstPort, l.LastPort)
}
