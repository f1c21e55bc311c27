package card

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gradnic/aggregation"
	"gradnic/dataplane"
)

func TestShippedProfilesAreRight(t *testing.T) {
	names := Shipped()
	if len(names) < 2 {
		t.Fatalf("%v", names)
	}
	for _, name := range names {
		p, err := Load(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if p.Name != name || p.What == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := Load("none"); err == nil || !strings.Contains(err.Error(), "tofino-switchml") {
		t.Errorf("%v", err)
	}
}

func TestLoadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	for text, says := range map[string]string{
		"name: mine\nslots: {value: 4, source: measured}\n": "",
		"name: mine\nslots: {value: 4}\n":                   "slots: its source is missing",
		"name: mine\nslots: {value: 0, source: x}\n":        "slots: 0 is not a number from 1",
		"name: mine\nslot: {value: 4, source: x}\n":         "unknown field",
		"slots: {value: 4, source: x}\n":                    "name is missing",
		"name: a\nsizes: [{elements: 64, workers: 2}]\n":    "64 elements: its source is missing",
		"name: a\nprotocols: {value: [x]}\n":                "protocols",
		"name: a\ntypes: {value: [int32]}\n":                "types",
		"name: a\nlink_rate: {value: 100000000000}\n":       "link_rate: its source is missing",
		"name: a\nlatency_ns: {value: 0, source: x}\n":      "latency_ns: 0 is not a number from 1",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Load(file)
		if says == "" && (err != nil || p.Slots.Value != 4) || says != "" && (err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// What the card would refuse is refused, with the figure and its source.
func TestCheck(t *testing.T) {
	p, err := Load("tofino-switchml")
	if err != nil {
		t.Fatal(err)
	}
	good := dataplane.JobSpec{Protocol: "switchml", Workers: 16, Elements: 256, Slots: 8192}
	for name, c := range map[string]struct {
		change      func(*dataplane.JobSpec)
		jobs, slots int
		field, says string
		full        bool
	}{
		"all it has":        {func(*dataplane.JobSpec) {}, 0, 0, "", "", false},
		"32 of 64 elements": {func(s *dataplane.JobSpec) { s.Elements, s.Workers = 64, 32 }, 0, 0, "", "", false},
		"protocol":          {func(s *dataplane.JobSpec) { s.Protocol = "native" }, 0, 0, "job.protocol", "it speaks switchml", false},
		"workers":           {func(s *dataplane.JobSpec) { s.Workers = 17 }, 0, 0, "job.workers", "it takes 16 (p4lang/p4app-switchML", false},
		"elements":          {func(s *dataplane.JobSpec) { s.Elements = 128 }, 0, 0, "job.elements", "64 or 256", false},
		"second job":        {func(*dataplane.JobSpec) {}, 1, 0, "job.name", "1 of 1 jobs", true},
		"slots":             {func(*dataplane.JobSpec) {}, 0, 1, "job.slots", "8191 would fit", true},
	} {
		spec := good
		c.change(&spec)
		r := p.Check(spec, Use{Jobs: c.jobs, Slots: c.slots})
		switch {
		case c.field == "" && r != nil:
			t.Errorf("%s: %+v", name, *r)
		case c.field != "" && (r == nil || r.Field != c.field || r.Full != c.full || !strings.Contains(r.Why, c.says)):
			t.Errorf("%s: %+v, want %s with %q", name, r, c.field, c.says)
		}
	}
}

// Memory of slots and types of elements, with what would fit.
func TestCheckMemoryAndTypes(t *testing.T) {
	p, err := Parse("mine", []byte("name: mine\ntypes: {value: [int32, float16], source: manual}\nslot_memory: {value: 1048576, source: manual}\n"))
	if err != nil {
		t.Fatal(err)
	}
	native := func(typ aggregation.Type) dataplane.JobSpec {
		return dataplane.JobSpec{Protocol: "native", Workers: 2, Elements: 256, Slots: 512, Native: &dataplane.NativeSpec{Type: typ}}
	}
	// 512 slots of 256 int32 in two versions are all the memory; of float16 half of it.
	if got := MemoryOf(native(aggregation.Int32)); got != 1<<20 {
		t.Errorf("%d bytes", got)
	}
	if got := MemoryOf(dataplane.JobSpec{Elements: 64, Slots: 1}); got != 512 {
		t.Errorf("SwitchML: %d bytes", got)
	}
	for _, c := range []struct {
		spec   dataplane.JobSpec
		others int64
		says   string
	}{
		{native(aggregation.Int32), 0, ""},
		{native(aggregation.Int32), 1, "511 slots would fit"},
		{native(aggregation.Float16), 1 << 19, ""},
		{native(aggregation.Float16), 1 << 20, "0 slots would fit"},
		{native(aggregation.Float32), 0, "float32: it sums int32, float16 (manual)"},
		{dataplane.JobSpec{Protocol: "switchml", Elements: 256, Slots: 8192}, 0, "512 slots would fit"},
	} {
		r := p.Check(c.spec, Use{Memory: c.others})
		if (r == nil) != (c.says == "") || r != nil && !strings.Contains(r.Why, c.says) {
			t.Errorf("%+v beside %d bytes: %+v, want %q", c.spec, c.others, r, c.says)
		}
		if r != nil && r.Full != strings.Contains(c.says, "fit") {
			t.Errorf("%q: full %t", r.Why, r.Full)
		}
	}
}
