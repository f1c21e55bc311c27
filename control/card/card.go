package card

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gradnic/internal/strictyaml"

	"gradnic/dataplane"
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
	// Sizes of packets; none: any.
	Sizes []Size `yaml:"sizes" json:"sizes,omitempty"`
}

//go:embed profiles/*.yaml
var shipped embed.FS

// Shipped are the names of the profiles that come with gradnic.
func Shipped() []string {
	entries, err := shipped.ReadDir("profiles")
	if err != nil {
		return nil // embed: it is there
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Load returns the shipped profile of a name, or the one in a file when it has a
// slash or ends in .yaml.
func Load(name string) (*Profile, error) {
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("card: %w", err)
		}
		return Parse(name, text)
	}
	text, err := shipped.ReadFile("profiles/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("card %q: there are %s, or give a file's path", name, strings.Join(Shipped(), ", "))
	}
	return Parse(name, text)
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
	for what, f := range map[string]*Figure{"jobs": p.Jobs, "slots": p.Slots} {
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
	if n := p.Protocols; n != nil && (len(n.Value) == 0 || n.Source == "") {
		return errors.New("protocols: a name, or the source, is missing")
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

// Check says why the device would refuse a job beside others that have so many jobs
// and slots together; nil: it would not.
func (p *Profile) Check(spec dataplane.JobSpec, jobs, slots int) *Refusal {
	no := func(full bool, field, format string, args ...any) *Refusal {
		return &Refusal{field, fmt.Sprintf("card %s: %s", p.Name, fmt.Sprintf(format, args...)), full}
	}
	if n := p.Protocols; n != nil && !slices.Contains(n.Value, spec.Protocol) {
		return no(false, "job.protocol", "%q: it speaks %s (%s)", spec.Protocol, strings.Join(n.Value, ", "), n.Source)
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
	if f := p.Jobs; f != nil && jobs+1 > f.Value {
		return no(true, "job.name", "it has %d of %d jobs (%s)", jobs, f.Value, f.Source)
	}
	if f := p.Slots; f != nil && slots+spec.Slots > f.Value {
		return no(true, "job.slots", "%d slots: it has %d of %d in use (%s): %d would fit", spec.Slots, slots, f.Value, f.Source, max(0, f.Value-slots))
	}
	return nil
}
