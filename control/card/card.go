package card

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/internal/strictyaml"
)

// Figure is a number of a device and where it is from.
type Figure struct {
	Value  int    `yaml:"value" json:"value"`
	Source string `yaml:"source" json:"source"`
}

// Size is a packet size that a device takes, with the most workers of a job at it.
type Size struct {
	Elements int    `yaml:"elements" json:"elements"`
	Workers  int    `yaml:"workers" json:"workers"`
	Source   string `yaml:"source" json:"source"`
}

// Names is a list of words of a device and where it is from.
type Names struct {
	Value  []string `yaml:"value" json:"value"`
	Source string   `yaml:"source" json:"source"`
}

// Profile is what a device takes.
type Profile struct {
	Name string `yaml:"name" json:"name"`
	What string `yaml:"what" json:"what"`
	// Protocols that it speaks, as jobs name them.
	Protocols *Names `yaml:"protocols" json:"protocols,omitempty"`
	// Jobs at a time.
	Jobs *Figure `yaml:"jobs" json:"jobs,omitempty"`
	// Slots of all jobs, each in two versions.
	Slots *Figure `yaml:"slots" json:"slots,omitempty"`
	// SlotMemory is what the values of the slots of all jobs may take, both versions, in bytes.
	SlotMemory *Figure `yaml:"slot_memory" json:"slot_memory,omitempty"`
	// Types are those of elements, as jobs name them; SwitchML's is int32.
	Types *Names `yaml:"types" json:"types,omitempty"`
	// LinkRate is that of each port, in bit/s: what a paced NIC keeps to.
	LinkRate *Figure `yaml:"link_rate" json:"link_rate,omitempty"`
	// Latency is what the device adds to a packet, in nanoseconds. It is shown and not imitated.
	Latency *Figure `yaml:"latency_ns" json:"latency_ns,omitempty"`
	// Sizes of packets; none: any.
	Sizes []Size `yaml:"sizes" json:"sizes,omitempty"`
}

//go:embed profiles/*.yaml
var profiles embed.FS

var shipped = strictyaml.Shipped{Kind: "card", Files: profiles, Folder: "profiles"}

// Shipped are the names of the profiles that come with gradnic.
func Shipped() []string { return shipped.Names() }

// Load returns the shipped profile of a name, or the one in a file when it has a
// slash or ends in .yaml.
func Load(name string) (*Profile, error) {
	file, text, err := shipped.Load(name)
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}

// Parse reads a profile; file is for errors.
func Parse(file string, text []byte) (*Profile, error) {
	var p Profile
	if err := strictyaml.Unmarshal("card "+file, text, &p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("card %s: %w", file, err)
	}
	return &p, nil
}

func (p *Profile) check() error {
	if p.Name == "" {
		return errors.New("name is missing")
	}
	for what, f := range map[string]*Figure{"jobs": p.Jobs, "slots": p.Slots, "slot_memory": p.SlotMemory, "link_rate": p.LinkRate, "latency_ns": p.Latency} {
		if f == nil {
			continue
		}
		if f.Value < 1 {
			return fmt.Errorf("%s: %d is not a number from 1", what, f.Value)
		}
		if f.Source == "" {
			return fmt.Errorf("%s: its source is missing", what)
		}
	}
	for what, n := range map[string]*Names{"protocols": p.Protocols, "types": p.Types} {
		if n != nil && (len(n.Value) == 0 || n.Source == "") {
			return fmt.Errorf("%s: a name, or the source, is missing", what)
		}
	}
	for _, s := range p.Sizes {
		if s.Elements < 1 || s.Workers < 1 {
			return fmt.Errorf("sizes: %d elements for %d workers: numbers from 1", s.Elements, s.Workers)
		}
		if s.Source == "" {
			return fmt.Errorf("sizes: %d elements: its source is missing", s.Elements)
		}
	}
	return nil
}

// Refusal is why a device would not take a job.
type Refusal struct {
	Field string // of the job
	Why   string
	// Full is true when there is no room now; false: it never would.
	Full bool
}

// Use is what jobs take of a device.
type Use struct {
	Jobs, Slots int
	Memory      int64 // bytes of values of slots, both versions
}

// MemoryOf is what the values of a job's slots take, both versions, in bytes.
func MemoryOf(spec dataplane.JobSpec) int64 {
	return int64(spec.Slots) * aggregation.Versions * int64((aggregation.Spec{Elements: spec.Elements, Type: typeOf(spec)}).WireBytes())
}

func typeOf(spec dataplane.JobSpec) aggregation.Type {
	if spec.Native != nil {
		return spec.Native.Type
	}
	return aggregation.Int32
}

// Check says why the device would refuse a job beside others that take so much together; nil: it would not.
func (p *Profile) Check(spec dataplane.JobSpec, others Use) *Refusal {
	no := func(full bool, field, format string, args ...any) *Refusal {
		return &Refusal{field, fmt.Sprintf("card %s: %s", p.Name, fmt.Sprintf(format, args...)), full}
	}
	if n := p.Protocols; n != nil && !slices.Contains(n.Value, spec.Protocol) {
		return no(false, "job.protocol", "%q: it speaks %s (%s)", spec.Protocol, strings.Join(n.Value, ", "), n.Source)
	}
	if n := p.Types; n != nil && !slices.Contains(n.Value, typeOf(spec).String()) {
		return no(false, "job.native.type", "%v: it sums %s (%s)", typeOf(spec), strings.Join(n.Value, ", "), n.Source)
	}
	if len(p.Sizes) > 0 {
		var takes []string
		found := false
		for _, s := range p.Sizes {
			takes = append(takes, fmt.Sprint(s.Elements))
			if s.Elements != spec.Elements {
				continue
			}
			found = true
			if spec.Workers > s.Workers {
				return no(false, "job.workers", "%d workers: at %d elements it takes %d (%s)", spec.Workers, s.Elements, s.Workers, s.Source)
			}
		}
		if !found {
			return no(false, "job.elements", "%d elements: it takes %s", spec.Elements, strings.Join(takes, " or "))
		}
	}
	if f := p.Jobs; f != nil && others.Jobs+1 > f.Value {
		return no(true, "job.name", "it has %d of %d jobs (%s)", others.Jobs, f.Value, f.Source)
	}
	if f := p.Slots; f != nil && others.Slots+spec.Slots > f.Value {
		return no(true, "job.slots", "%d slots: it has %d of %d in use (%s): %d would fit", spec.Slots, others.Slots, f.Value, f.Source, max(0, f.Value-others.Slots))
	}
	if f := p.SlotMemory; f != nil {
		if need, left := MemoryOf(spec), int64(f.Value)-others.Memory; need > left {
			one := need / int64(spec.Slots)
			return no(true, "job.slots", "%d slots take %d bytes: it has %d of %d in use (%s): %d slots would fit",
				spec.Slots, need, others.Memory, f.Value, f.Source, max(0, left/one))
		}
	}
	return nil
}
