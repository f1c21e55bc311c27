package interop

import (
	"embed"
	"errors"
	"fmt"
	"slices"

	"gradnic/internal/strictyaml"
	"gradnic/wire/layout"
)

// Suite is a list of cases for one protocol.
type Suite struct {
	Name  string `yaml:"suite"`
	About string `yaml:"about"`
	// Layout names the layout whose fields the frames have.
	Layout string `yaml:"layout"`
	// Port is the UDP port of the card that frames go to.
	Port uint16 `yaml:"port"`
	// OneSize is true when all frames say how many elements they have: one run is enough.
	OneSize bool `yaml:"one-size"`
	// WorkerPort is the UDP port of the workers, if it is not the usual one.
	WorkerPort uint16 `yaml:"worker-port"`
	// Word, if set, is what datagrams are filled up to a multiple of, with zeros; what the card fills up with is not compared.
	Word int `yaml:"word"`
	// Bodies are headers of payloads, by name: fields with offsets from the payload's start.
	Bodies map[string][]BodyField `yaml:"bodies"`
	// Send and Expect are what frames have that say nothing else.
	Send   Frame `yaml:"send"`
	Expect Frame `yaml:"expect"`
	// Before are steps that run before each case, and Wash those that run for each of its slots, unless it says fresh:
	// false. In a suite with Wash each case has slots of its own, else all have the card's first.
	Before []Step `yaml:"before"`
	Wash   []Step `yaml:"wash"`
	// Parts are steps that cases have in common, by name: see Step.Do.
	Parts map[string][]Step `yaml:"parts"`
	// Ignore, if set, is for cards with clocks of their own: frames that have these header fields may come at any time, and
	// those with a flag that says so may repeat what was sent.
	Ignore []map[string]any `yaml:"ignore"`
	// ArrayResult are fields of the results of arrays that their contributions do not have.
	ArrayResult map[string]any `yaml:"array-result"`
	Cases       []Case         `yaml:"cases"`

	named  *layout.Layout // by Layout
	layout *layout.Layout // that frames have: the named one, or another with the same rules
	bodies map[string][]*layout.Field
	rest   map[string]*layout.Field
}

// BodyField is one field of a body: Offset in bytes, Width in bits, big endian.
type BodyField struct {
	Name   string `yaml:"name"`
	Offset int    `yaml:"offset"`
	Width  int    `yaml:"width"`
	// Rest is true for the field that says how many bytes follow the body.
	Rest bool `yaml:"rest"`
}

// Case is one thing that a card must do.
type Case struct {
	Name string `yaml:"name"`
	Why  string `yaml:"why"`
	// Slots is how many slots the case uses; 0: 1. Slot numbers in its frames count from the first of them.
	Slots int `yaml:"slots"`
	// Elements, if set, is the only number of elements a packet that the case is for.
	Elements int `yaml:"elements"`
	// Open is true when the protocol leaves the matter to the card: a card that does it otherwise is not at fault.
	Open bool `yaml:"open"`
	// Call is what the card is told to do when the case begins; CallFails is true when it must end with an error.
	Call      *Call `yaml:"call"`
	CallFails bool  `yaml:"call-fails"`
	// Fresh is false when the suite's Before and Wash are left out.
	Fresh *bool `yaml:"fresh"`
	// Header is true for a case about bits of the suite's own header, which another layout has not.
	Header bool   `yaml:"header"`
	Steps  []Step `yaml:"steps"`
}

// Step is one of the things below; exactly one is set.
type Step struct {
	// Send sends a frame.
	Send *Frame `yaml:"send"`
	// Times repeats Send; 0: once.
	Times int `yaml:"times"`
	// May are frames that may come, once each, and need not: Send repeats what the step before has sent, and a right card
	// says something when time has passed in between, which it does when the kit's host stands still. See Frame.After.
	May []Frame `yaml:"may"`
	// Expect waits for exactly these frames, in any order; an empty list: for none.
	Expect *[]Frame `yaml:"expect"`
	// Do goes through a part of the suite.
	Do string `yaml:"do"`
	// End waits for the end of the card's call.
	End bool `yaml:"end"`
	// Acking is for Expect in a ring: data that come are acknowledged, with $credit as the credit. Quiet is how long
	// nothing more must come, in milliseconds; 0: as usual. Settled is true when nothing may be repeated either.
	Acking  bool `yaml:"acking"`
	Quiet   int  `yaml:"quiet"`
	Settled bool `yaml:"settled"`
	// Early is true when data may come that belong to what follows: the next Expect sees them.
	Early bool `yaml:"early"`
	// Take waits for so many frames at least, and forgets what the card sent.
	Take int `yaml:"take"`
	// Pause waits, in milliseconds.
	Pause int `yaml:"pause"`
	// Let sets variables: a number, "$other", "random", or "epoch": a ring's, of $generation and $boot0, $boot1 and so on.
	Let map[string]any `yaml:"let"`
	// Array reduces a whole array.
	Array *Array `yaml:"array"`
	// Capture replays the recorded requests of one run and expects the recorded replies.
	Capture string `yaml:"capture"`
}

// Array is an all-reduce of an array in packets, over all slots of the case: worker r's element i is (r+1)*(i+1), and
// what pads the last packet is not zero.
type Array struct {
	// Length is Segments packets and Plus elements.
	Segments int `yaml:"segments"`
	Plus     int `yaml:"plus"`
	// Fields are those of all frames; "chunk", "slot", "set" and "round" may stand in values.
	Fields map[string]any `yaml:"fields"`
	// Again are those of results that are sent once more.
	Again map[string]any `yaml:"again"`
	// Order is how a window of packets is sent: "" worker by worker, "reverse" from the last slot, "twice" each packet
	// twice in a row, "lossy" the first packet of a worker is left out and sent at the end.
	Order string `yaml:"order"`
	// May is as that of Step, for packets that are repeated at once while others are missing. Its worker, the packet's fields
	// and the bitmap of those that are missing, behind the body, are filled in; "worker" may stand in values.
	May *Frame `yaml:"may"`
}

// Frame describes a frame. What is left out has the usual value.
type Frame struct {
	// From is the worker that sends it, To the one that it is for. One of them is set.
	From *int `yaml:"from"`
	To   *int `yaml:"to"`
	// Fields are header fields of the layout, and of the body; numbers, words, "$variable", "$variable+1".
	Fields map[string]any `yaml:"fields"`
	Values *Values        `yaml:"values"`
	// Body names a body; Tail are bytes behind it, in hexadecimal.
	Body string `yaml:"body"`
	Tail string `yaml:"tail"`
	// Elements is the number of values; 0: the run's.
	Elements int `yaml:"elements"`
	// Slice makes it a slice of a ring, in as many frames as it has.
	Slice *Slice `yaml:"slice"`
	Ether *Ether `yaml:"ether"`
	IP    *IP    `yaml:"ip"`
	UDP   *UDP   `yaml:"udp"`
	// VLAN, if set, puts an 802.1Q tag of this number in.
	VLAN int `yaml:"vlan"`
	// Size is the length of the frame in bytes: cut there, or filled up behind the message. Fill is the byte for that.
	Size int   `yaml:"size"`
	Fill uint8 `yaml:"fill"`
	// Hex is the whole frame, in hexadecimal; {nic.mac}, {nic.ip}, {w0.mac}, {w0.ip} and so on may stand in it.
	Hex string `yaml:"hex"`
	// Any are parts that are not compared: header fields by name, "values", "body", and those below the protocol (lowerParts),
	// such as ip.tos or udp.checksum.
	Any []string `yaml:"any"`

	// After is for frames that may come: how many milliseconds after the first sending of what is repeated, at least.
	After int `yaml:"after"`

	encoded []byte // behind the body
}

// Values are numbers in a payload.
type Values struct {
	// Start and Step: element i is Start + i*Step.
	Start int64 `yaml:"start"`
	Step  int64 `yaml:"step"`
	// List are the first elements; the others are as above.
	List []int64 `yaml:"list"`
	// Type is the element type; "": int32.
	Type string `yaml:"type"`
}

// Ether changes the Ethernet header.
type Ether struct {
	Dst  string `yaml:"dst"`
	Src  string `yaml:"src"`
	Type int    `yaml:"type"`
}

// IP changes the IPv4 header.
type IP struct {
	Src      string `yaml:"src"`
	Dst      string `yaml:"dst"`
	TTL      int    `yaml:"ttl"`
	Protocol int    `yaml:"protocol"`
	TOS      int    `yaml:"tos"`
	ID       int    `yaml:"id"`
	DF       bool   `yaml:"df"`
	// Fragment are the 16 bits of flags and offset, if not 0.
	Fragment int `yaml:"fragment"`
	// Longer is added to the length field.
	Longer int `yaml:"longer"`
	// Options puts four bytes of options in.
	Options bool `yaml:"options"`
	// Checksum is good (the default), bad or zero.
	Checksum string `yaml:"checksum"`
}

// UDP changes the UDP header.
type UDP struct {
	Src    int `yaml:"src"`
	Dst    int `yaml:"dst"`
	Longer int `yaml:"longer"`
	// Checksum is none (the default), good, bad, or pseudo: what a host leaves to its card.
	Checksum string `yaml:"checksum"`
}

//go:embed suites/*.yaml
var suites embed.FS

var shipped = strictyaml.Shipped{Kind: "suite", Files: suites, Folder: "suites"}

// Shipped are the names of the suites that come with gradnic.
func Shipped() []string { return shipped.Names() }

// Load returns the shipped suite of a name, or the one in a file when it has a slash or ends in .yaml.
func Load(name string) (*Suite, error) {
	file, text, err := shipped.Load(name)
	if err != nil {
		if file != "" { // it was looked for among those that come with gradnic
			err = unknown{err}
		}
		return nil, err
	}
	return Parse(file, text)
}

// Parse reads a suite; file is for errors.
func Parse(file string, text []byte) (*Suite, error) {
	var s Suite
	if err := strictyaml.Unmarshal("suite "+file, text, &s); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("suite %s: %w", file, err)
	}
	return &s, nil
}

func (s *Suite) check() (err error) {
	if s.Name == "" || len(s.Cases) == 0 {
		return fmt.Errorf("there is no suite in it: write suite, layout, and cases")
	}
	if s.layout, err = layout.Load(s.Layout); err != nil {
		return err
	}
	s.named = s.layout
	s.bodies, s.rest = map[string][]*layout.Field{}, map[string]*layout.Field{}
	for name, fields := range s.Bodies {
		for _, b := range fields {
			f, err := layout.NewField(b.Name, b.Offset, b.Width)
			if err != nil {
				return fmt.Errorf("body %s: %w", name, err)
			}
			s.bodies[name] = append(s.bodies[name], f)
			if b.Rest {
				s.rest[name] = f
			}
		}
	}
	seen := map[string]bool{}
	for i := range s.Cases {
		c := &s.Cases[i]
		if c.Name == "" || seen[c.Name] {
			return fmt.Errorf("case %d: %q: each has a name of its own", i+1, c.Name)
		}
		seen[c.Name] = true
		c.Slots = max(c.Slots, 1)
		if k := c.Call; k != nil && (k.Count < 0 || k.Count > 1<<22 || k.Root < 0 || k.Root > 254 || k.Nodes < 0 || k.Nodes > 254) {
			return fmt.Errorf("case %s: a call of %d elements, root %d, %d nodes: legal are 4194304, 254, 254", c.Name, k.Count, k.Root, k.Nodes)
		}
		if c.Call != nil && c.Call.Codec != "" && c.Call.Nodes == 0 {
			c.Call.Nodes = 2
		}
		if err := s.checkSteps(c.Steps); err != nil {
			return fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	for name, steps := range s.Parts {
		if err := s.checkSteps(steps); err != nil {
			return fmt.Errorf("part %s: %w", name, err)
		}
	}
	for _, fields := range s.Ignore {
		for name := range fields {
			if s.field(name) == nil {
				return fmt.Errorf("ignore: field %q: layout %s has none", name, s.Layout)
			}
		}
	}
	return errors.Join(s.checkSteps(s.Before), s.checkSteps(s.Wash))
}

func (s *Suite) checkSteps(steps []Step) error {
	for i := range steps {
		x := &steps[i]
		set := 0
		for _, is := range []bool{x.Send != nil, x.Expect != nil, x.Take > 0, x.Pause > 0, x.Let != nil, x.Array != nil, x.Capture != "", x.Do != "", x.End} {
			if is {
				set++
			}
		}
		if set != 1 {
			return fmt.Errorf("step %d: one of send, expect, take, pause, let, array, capture, do, end", i+1)
		}
		if a := x.Array; a != nil && (a.Segments < 0 || a.Segments > 1<<16 || a.Plus < -1<<16 || a.Plus > 1<<16) {
			return fmt.Errorf("step %d: array of %d packets and %d elements: legal are 65536 of each", i+1, a.Segments, a.Plus)
		}
		for _, n := range []int{x.Times, x.Take, x.Pause, x.Quiet} {
			if n < 0 || n > 100_000 {
				return fmt.Errorf("step %d: times, take, pause and quiet: legal are 0 to 100000", i+1)
			}
		}
		if x.Do != "" && s.Parts[x.Do] == nil {
			return fmt.Errorf("step %d: do: %q: there is no such part", i+1, x.Do)
		}
		if x.Expect == nil && (x.Acking || x.Settled || x.Early || x.Quiet != 0) {
			return fmt.Errorf("step %d: acking, settled, early and quiet belong to expect", i+1)
		}
		if x.May != nil && (x.Send == nil || x.Times > 1 || i == 0 || steps[i-1].Send == nil) {
			return fmt.Errorf("step %d: may belongs to a send that repeats the send before it", i+1)
		}
		frames := slices.Clone(x.May)
		if x.Array != nil && x.Array.May != nil {
			f := *x.Array.May
			f.To = new(int) // filled in
			frames = append(frames, f)
		}
		for _, f := range frames {
			if f.After <= 0 || f.To == nil {
				return fmt.Errorf("step %d: what may come is to a worker, and says after how many milliseconds", i+1)
			}
		}
		if x.Send != nil {
			frames = append(frames, *x.Send)
		}
		if x.Expect != nil {
			frames = append(frames, *x.Expect...)
		}
		for _, f := range frames {
			if f.Hex == "" && (f.From == nil) == (f.To == nil) {
				return fmt.Errorf("step %d: a frame is from a worker or to one", i+1)
			}
			for _, r := range []*int{f.From, f.To} {
				if r != nil && (*r < 0 || *r > 254) {
					return fmt.Errorf("step %d: worker %d: legal are 0 to 254", i+1, *r)
				}
			}
			if f.Size < 0 || f.Size > 1<<16 || f.Elements < 0 || f.Elements > 1<<16 || f.VLAN < 0 || f.VLAN > 4095 {
				return fmt.Errorf("step %d: a frame of %d bytes, %d elements, VLAN %d: legal are 65536 of the first two, 4095", i+1, f.Size, f.Elements, f.VLAN)
			}
			if f.Slice != nil && f.Body != "" {
				return fmt.Errorf("step %d: a slice has its own body", i+1)
			}
			if f.Slice != nil {
				f.Body = sliceBody
			}
			if err := s.checkNames(&f); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
	}
	return nil
}

// checkNames refuses fields that there are not.
func (s *Suite) checkNames(f *Frame) error {
	if f.Body != "" && s.bodies[f.Body] == nil {
		return fmt.Errorf("body %q: there is none", f.Body)
	}
	for name := range f.Fields {
		if s.field(name) == nil && s.bodyField(f.Body, name) == nil {
			return fmt.Errorf("field %q: layout %s has none", name, s.Layout)
		}
	}
	for _, name := range f.Any {
		_, ok := lower(name)
		if !ok && s.field(name) == nil && s.bodyField(f.Body, name) == nil && !slices.Contains([]string{"values", "body"}, name) {
			return fmt.Errorf("any: %q: no such part", name)
		}
	}
	return nil
}

// With is the suite with frames of another layout, which has the same rules: fields are found by their meaning, and those
// that the other layout has not are left out.
func (s *Suite) With(l *layout.Layout) (*Suite, error) {
	if l.Rules != s.layout.Rules {
		return nil, fmt.Errorf("layout %s has rules %s, suite %s is for rules %s", l.Name, l.Rules, s.Name, s.layout.Rules)
	}
	c := *s
	c.layout, c.named, c.Port = l, s.named, l.FirstPort
	return &c, nil
}

// own reports whether the frames have the suite's own layout.
func (s *Suite) own() bool { return s.layout == s.named }

// field is a field by the name that it has in the suite's own layout.
func (s *Suite) field(name string) *layout.Field {
	f := s.named.Field(name)
	switch {
	case f == nil || s.own():
		return f
	case f.Meaning != layout.None:
		return s.layout.Of(f.Meaning)
	}
	return s.layout.Field(name)
}

func (s *Suite) bodyField(body, name string) *layout.Field {
	for _, f := range s.bodies[body] {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// recorded reports whether the case has slots of a recording, which are the card's first.
func (c *Case) recorded() bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Capture != "" })
}
