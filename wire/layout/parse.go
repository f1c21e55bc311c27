package layout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gradnic/internal/strictyaml"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// MaxFile bounds a file in bytes, MaxHeader a header, MaxFields the fields.
const (
	MaxFile   = 1 << 20
	MaxHeader = 256
	MaxFields = 256
	// MaxRunning bounds a header whose rules answer.
	MaxRunning = 64
)

type pageFile struct {
	Layout        string      `yaml:"layout"`
	About         string      `yaml:"about"`
	Rules         string      `yaml:"rules"`
	Encapsulation capsuleFile `yaml:"encapsulation"`
	ByteOrder     string      `yaml:"byte-order"`
	Header        int         `yaml:"header"`
	Fields        []fieldFile `yaml:"fields"`
	Payload       payloadFile `yaml:"payload"`
	Trailer       []fieldFile `yaml:"trailer"`
	Job           *uint64     `yaml:"job"`
}

type capsuleFile struct {
	UDP       string `yaml:"udp"`
	EtherType uint64 `yaml:"ethertype"`
}

type fieldFile struct {
	Name      string            `yaml:"name"`
	Offset    int               `yaml:"offset"`
	Bit       int               `yaml:"bit"`
	Width     int               `yaml:"width"`
	ByteOrder string            `yaml:"byte-order"`
	Meaning   string            `yaml:"meaning"`
	Fixed     *uint64           `yaml:"fixed"`
	Reply     *uint64           `yaml:"reply"`
	Values    map[string]uint64 `yaml:"values"`
	Encoding  string            `yaml:"encoding"`
	About     string            `yaml:"about"`
}

type payloadFile struct {
	Type      string `yaml:"type"`
	ByteOrder string `yaml:"byte-order"`
	Elements  int    `yaml:"elements"`
}

// reader is a page while it is checked.
type reader struct {
	file string
	text []byte
	l    *Layout
}

// errorf is an error at a place of the file, "$.fields[2].width".
func (r *reader) errorf(place, format string, args ...any) error {
	where := r.file
	if line := strictyaml.Line(r.text, place); line > 0 {
		where += ":" + strconv.Itoa(line)
	}
	return fmt.Errorf("layout %s: %s", where, fmt.Sprintf(format, args...))
}

// Parse reads a page and compiles it; file is for errors, which say the line and what mends it.
func Parse(file string, text []byte) (*Layout, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("layout %s: a page has at most %d bytes", file, MaxFile)
	}
	var p pageFile
	if err := strictyaml.Unmarshal("layout "+file, text, &p); err != nil {
		return nil, err
	}
	r := &reader{file: file, text: text, l: &Layout{Name: p.Layout, About: p.About, File: file, Header: p.Header}}
	for _, step := range []func(*pageFile) error{r.head, r.capsule, r.fields, r.payload, r.trailer, r.overlaps, r.meanings} {
		if err := step(&p); err != nil {
			return nil, err
		}
	}
	if r.l.Rules != ShowOnly {
		r.l.compile()
	}
	return r.l, nil
}

func (r *reader) head(p *pageFile) error {
	if p.Layout == "" || strings.ContainsAny(p.Layout, " /\t\n") {
		return r.errorf("$.layout", "layout: %q is no name: one word, which jobs use", p.Layout)
	}
	i := slices.Index(ruleNames[:], p.Rules)
	if i < 0 {
		return r.errorf("$.rules", "rules: %q: legal are switchml, native, and none to decode only", p.Rules)
	}
	r.l.Rules = Rules(i)
	most := MaxRunning
	if r.l.Rules == ShowOnly {
		most = MaxHeader
	}
	if p.Header < 1 || p.Header > most {
		return r.errorf("$.header", "header: %d bytes: legal are 1 to %d with rules %s", p.Header, most, r.l.Rules)
	}
	return nil
}

func (r *reader) capsule(p *pageFile) error {
	l, c := r.l, p.Encapsulation
	switch {
	case (c.UDP == "") == (c.EtherType == 0):
		return r.errorf("$.encapsulation", "encapsulation: write udp: PORT, udp: FIRST-LAST, or ethertype: NUMBER")
	case c.EtherType != 0:
		known := []uint64{inet.EtherTypeIPv4, inet.EtherTypeARP, inet.EtherTypeVLAN, inet.EtherTypeQinQ, inet.EtherTypeOldQ, 0x86dd}
		if c.EtherType < 0x600 || c.EtherType > 0xffff || slices.Contains(known, c.EtherType) {
			return r.errorf("$.encapsulation.ethertype", "ethertype: 0x%04x: a number from 0x0600 to 0xffff that is not IPv4's, IPv6's, ARP's or a VLAN tag's; 0x88b5 is for experiments", c.EtherType)
		}
		l.EtherType, l.base = uint16(c.EtherType), inet.EthernetLen
		return nil
	}
	first, last, isRange := strings.Cut(c.UDP, "-")
	if !isRange {
		last = first
	}
	a, err1 := strconv.ParseUint(strings.TrimSpace(first), 0, 16)
	b, err2 := strconv.ParseUint(strings.TrimSpace(last), 0, 16)
	if err1 != nil || err2 != nil || a == 0 || b < a {
		return r.errorf("$.encapsulation.udp", "udp: %q: one port from 1 to 65535, or two as 0xBEE0-0xBEEF", c.UDP)
	}
	most := map[Rules]uint64{SwitchML: 16, Native: 1, ShowOnly: 1 << 16}[l.Rules]
	if b-a+1 > most {
		return r.errorf("$.encapsulation.udp", "udp: %d ports: rules %s take %d", b-a+1, l.Rules, most)
	}
	l.FirstPort, l.LastPort, l.base = uint16(a), uint16(b), inet.PayloadOffset
	return nil
}

func (r *reader) order(place, word string, inherit bool) (little bool, err error) {
	switch word {
	case "":
		return inherit, nil
	case "big":
		return false, nil
	case "little":
		return true, nil
	}
	return false, r.errorf(place, "byte-order: %q: legal are big and little", word)
}

func (r *reader) fields(p *pageFile) (err error) {
	if len(p.Fields) > MaxFields {
		return r.errorf("$.fields", "%d fields: at most %d", len(p.Fields), MaxFields)
	}
	little, err := r.order("$.byte-order", p.ByteOrder, false)
	if err != nil {
		return err
	}
	r.l.Fields, err = r.list("$.fields", p.Fields, r.l.Header, little)
	return err
}

// list reads fields of a header of so many bytes.
func (r *reader) list(place string, in []fieldFile, room int, little bool) ([]Field, error) {
	out := make([]Field, 0, len(in))
	seen := map[string]bool{}
	for i, x := range in {
		at := fmt.Sprintf("%s[%d]", place, i)
		f, err := r.field(at, &x, room, little)
		if err != nil {
			return nil, err
		}
		if seen[f.Name] {
			return nil, r.errorf(at+".name", "field %s is there twice: give it another name", f.Name)
		}
		seen[f.Name] = true
		out = append(out, f)
	}
	return out, nil
}

func (r *reader) field(at string, x *fieldFile, room int, little bool) (f Field, err error) {
	f = Field{Name: x.Name, Offset: x.Offset, Bit: x.Bit, Width: x.Width, Fixed: x.Fixed, Reply: x.Reply, Values: maps.Clone(x.Values), About: x.About}
	if x.Name == "" {
		return f, r.errorf(at, "a field has no name")
	}
	if x.Offset < 0 || x.Offset > MaxHeader || x.Bit < 0 || x.Bit > 7 {
		return f, r.errorf(at+".offset", "field %s: byte %d, bit %d: bytes count from 0, bits from 0 to 7", x.Name, x.Offset, x.Bit)
	}
	if x.Width < 1 || x.Bit+x.Width > 64 {
		return f, r.errorf(at+".width", "field %s: %d bits from bit %d: a field has 1 to 64 bits in at most 8 bytes; split it", x.Name, x.Width, x.Bit)
	}
	if n := x.Offset + f.bytes(); n > room {
		return f, r.errorf(at+".offset", "field %s ends at byte %d: there are %d", x.Name, n, room)
	}
	whole := x.Bit == 0 && x.Width%8 == 0
	if f.Little, err = r.order(at+".byte-order", x.ByteOrder, little && whole); err != nil {
		return f, err
	}
	if f.Little && !whole {
		return f, r.errorf(at+".byte-order", "field %s: little endian has whole bytes only: %d bits from bit %d are not", x.Name, x.Width, x.Bit)
	}
	f.compile()
	for name, v := range map[string]*uint64{"fixed": x.Fixed, "reply": x.Reply} {
		if v != nil && *v&^f.mask != 0 {
			return f, r.errorf(at+"."+name, "field %s: %s: %d needs more than its %d bits", x.Name, name, *v, x.Width)
		}
	}
	switch x.Encoding {
	case "", "number":
	case "one-hot":
		f.OneHot = true
	default:
		return f, r.errorf(at+".encoding", "field %s: encoding %q: legal are number and one-hot", x.Name, x.Encoding)
	}
	if x.Meaning != "" {
		i := slices.Index(meaningNames[:], x.Meaning)
		if i < 0 {
			return f, r.errorf(at+".meaning", "field %s: meaning %q: legal are %s", x.Name, x.Meaning, strings.Join(meaningNames[1:], ", "))
		}
		f.Meaning = Meaning(i)
		if x.Fixed != nil {
			return f, r.errorf(at+".fixed", "field %s has a meaning and a fixed value: leave one out (the rules assume 0 for what has no field)", x.Name)
		}
	}
	if f.OneHot && f.Meaning != Worker {
		return f, r.errorf(at+".encoding", "field %s: one-hot is for meaning worker", x.Name)
	}
	return f, r.values(at, &f)
}

// values compiles the card's words for the numbers of a field.
func (r *reader) values(at string, f *Field) error {
	names := slices.Sorted(maps.Keys(f.Values))
	used := map[uint64]string{}
	for _, name := range names {
		v := f.Values[name]
		if v&^f.mask != 0 {
			return r.errorf(at+".values", "field %s: %s: %d needs more than its %d bits", f.Name, name, v, f.Width)
		}
		if other, ok := used[v]; ok {
			return r.errorf(at+".values", "field %s: %s and %s are both %d", f.Name, other, name, v)
		}
		used[v] = name
	}
	u := uses[r.l.Rules][f.Meaning]
	if u.words == nil || r.l.Rules == ShowOnly {
		if len(names) > 0 && f.Meaning != None && r.l.Rules != ShowOnly {
			return r.errorf(at+".values", "field %s: values are for meanings kind and type, and for fields without one", f.Name)
		}
		return nil
	}
	if len(names) == 0 {
		return r.errorf(at, "field %s: values are missing: the card's numbers for %s", f.Name, strings.Join(slices.Sorted(maps.Keys(u.words)), ", "))
	}
	if f.Width > 8 {
		return r.errorf(at+".width", "field %s: with values it has at most 8 bits", f.Name)
	}
	f.forward, f.back = make([]int16, 1<<f.Width), make([]int16, 256)
	for i := range f.forward {
		f.forward[i] = -1
	}
	for i := range f.back {
		f.back[i] = -1
	}
	for _, name := range names {
		n, ok := u.words[name]
		if !ok {
			return r.errorf(at+".values", "field %s: %q: the rules know %s", f.Name, name, strings.Join(slices.Sorted(maps.Keys(u.words)), ", "))
		}
		f.forward[f.Values[name]], f.back[n] = int16(n), int16(f.Values[name])
	}
	if f.Meaning != Kind {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if _, ok := f.Values[name]; !ok {
			return r.errorf(at+".values", "field %s: %s is missing: the rules need every kind", f.Name, name)
		}
	}
	return nil
}

func (r *reader) payload(p *pageFile) error {
	little, err := r.order("$.payload.byte-order", p.Payload.ByteOrder, r.l.Rules == Native)
	if err != nil {
		return err
	}
	r.l.Payload = Payload{Type: p.Payload.Type, Little: little, Elements: p.Payload.Elements}
	if p.Payload.Elements < 0 || p.Payload.Elements > 1<<16 {
		return r.errorf("$.payload.elements", "payload: %d elements: numbers from 1", p.Payload.Elements)
	}
	t, ok := types[p.Payload.Type]
	if p.Payload.Type != "" && !ok {
		return r.errorf("$.payload.type", "payload: type %q: legal are %s", p.Payload.Type, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
	}
	if r.l.Rules == SwitchML && p.Payload.Type != "" && p.Payload.Type != "int32" {
		return r.errorf("$.payload.type", "payload: type %s: rules switchml sum int32", p.Payload.Type)
	}
	if r.l.Rules == SwitchML {
		t, ok = types["int32"], true
	}
	if ok {
		r.l.typ, r.l.size = t, native.Type(t).Size()
	}
	return nil
}

func (r *reader) trailer(p *pageFile) (err error) {
	if len(p.Trailer) == 0 {
		return nil
	}
	if r.l.Rules != ShowOnly {
		return r.errorf("$.trailer", "trailer: rules %s have the payload last; a layout with rules none may have one", r.l.Rules)
	}
	if r.l.Payload.Elements == 0 || r.l.size == 0 {
		return r.errorf("$.trailer", "trailer: say where it starts: payload needs type and elements")
	}
	if r.l.Trailer, err = r.list("$.trailer", p.Trailer, MaxHeader, false); err != nil {
		return err
	}
	for i := range r.l.Trailer {
		r.l.trail = max(r.l.trail, r.l.Trailer[i].Offset+r.l.Trailer[i].bytes())
	}
	return nil
}

// overlaps refuses fields that share bits.
func (r *reader) overlaps(*pageFile) error {
	owner := make([]int, 8*r.l.Header)
	for i := range r.l.Fields {
		f := &r.l.Fields[i]
		for b := 8*f.Offset + f.Bit; b < 8*f.Offset+f.Bit+f.Width; b++ {
			if o := owner[b]; o > 0 {
				return r.errorf(fmt.Sprintf("$.fields[%d].offset", i), "field %s lies on field %s, at byte %d", f.Name, r.l.Fields[o-1].Name, b/8)
			}
			owner[b] = i + 1
		}
	}
	return nil
}

// meanings checks that the rules have all that they need, and nothing that they do not know.
func (r *reader) meanings(p *pageFile) error {
	l := r.l
	table := uses[l.Rules]
	for i := range l.Fields {
		f := &l.Fields[i]
		at := fmt.Sprintf("$.fields[%d]", i)
		if f.Meaning == None {
			continue
		}
		if l.by[f.Meaning] != nil {
			return r.errorf(at+".meaning", "fields %s and %s both mean %s: leave it out of one", l.by[f.Meaning].Name, f.Name, f.Meaning)
		}
		l.by[f.Meaning] = f
		if l.Rules == ShowOnly {
			continue
		}
		u, ok := table[f.Meaning]
		if !ok {
			return r.errorf(at+".meaning", "field %s: rules %s have no %s: they know %s", f.Name, l.Rules, f.Meaning, known(table))
		}
		f.limit = ^uint64(0) >> (64 - u.width)
	}
	for m, u := range table {
		if u.needed && l.by[m] == nil {
			return r.errorf("$.fields", "no field means %s, which rules %s need: add one with meaning: %s", m, l.Rules, m)
		}
	}
	for _, m := range []Meaning{Epoch, Round} {
		if f := l.by[m]; l.Rules == Native && f.Width != 32 {
			return r.errorf("$.fields", "field %s: %d bits: rules native need 32 for %s, whose values may be any", f.Name, f.Width, m)
		}
	}
	switch {
	case l.Rules != Native || l.by[Job] != nil:
		if p.Job != nil {
			return r.errorf("$.job", "job: for rules native without a field that means job")
		}
	case p.Job == nil || *p.Job < 1 || *p.Job > 0xffff:
		return r.errorf("$.job", "no field means job: say job: NUMBER, 1 to 65535, of the one job whose frames these are")
	default:
		l.job = *p.Job
	}
	if l.Rules == Native && l.by[Type] == nil && l.size == 0 {
		return r.errorf("$.payload", "no field means type: say payload: {type: int32}, or another")
	}
	if l.Rules != ShowOnly && l.EtherType != 0 && l.by[Length] == nil && !(l.Rules == SwitchML && l.by[Size] != nil) {
		return r.errorf("$.fields", "no field means length: behind Ethernet, which pads short frames, the rules need one")
	}
	return nil
}

func known(table map[Meaning]use) string {
	var names []string
	for m := range table {
		names = append(names, m.String())
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
