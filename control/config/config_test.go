package config

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// values are a set of flags of each kind.
type values struct {
	ports []string
	ip    string
	lanes int
	cpus  []int
	spin  time.Duration
	huge  bool
	flags *pflag.FlagSet
}

func newValues(args ...string) *values {
	v := &values{flags: pflag.NewFlagSet("run", pflag.ContinueOnError)}
	v.flags.StringArrayVar(&v.ports, "port", nil, "interfaces")
	v.flags.StringVar(&v.ip, "ip", "", "address")
	v.flags.IntVar(&v.lanes, "lanes", 1, "threads")
	v.flags.IntSliceVar(&v.cpus, "cpus", nil, "CPUs")
	v.flags.DurationVar(&v.spin, "spin", time.Millisecond, "time")
	v.flags.BoolVar(&v.huge, "huge-pages", false, "pages")
	v.flags.String("config", "", "file")
	if err := v.flags.Parse(args); err != nil {
		panic(err)
	}
	return v
}

func (v *values) read(text string) error {
	return Read("f.yaml", strings.NewReader(text), v.flags, "config")
}

const whole = `# a comment
port: [eth1, "eth 2"]
ip: 10.50.0.254
lanes: 0x2
cpus:
  - 2
  - 3
spin: 20us
huge-pages: true
`

func TestReadAllKinds(t *testing.T) {
	v := newValues()
	if err := v.read(whole); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v.ports, []string{"eth1", "eth 2"}) || v.ip != "10.50.0.254" || v.lanes != 2 ||
		!slices.Equal(v.cpus, []int{2, 3}) || v.spin != 20*time.Microsecond || !v.huge {
		t.Errorf("%+v", v)
	}
	v = newValues()
	if err := v.read("port: eth1\n"); err != nil || !slices.Equal(v.ports, []string{"eth1"}) {
		t.Errorf("one value for a list: %v, %v", v.ports, err)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		if err := newValues().read(empty); err != nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestCommandLineWins(t *testing.T) {
	v := newValues("--lanes", "4", "--port", "eth9")
	if err := v.read(whole); err != nil {
		t.Fatal(err)
	}
	if v.lanes != 4 || !slices.Equal(v.ports, []string{"eth9"}) || v.ip != "10.50.0.254" {
		t.Errorf("%+v", v)
	}
}

// Each error says file, line and column, and a file with a wrong key sets nothing.
func TestReadRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"ip: 1.2.3.4\nlames: 2\n":       `f.yaml:2:1: "lames" is not a key: did you mean lanes?`,
		"hugepages: true\n":             "did you mean huge-pages?",
		"prot: eth1\n":                  "did you mean port?", // neighbours swapped: drop is not nearer
		"qqqqqqqq: 1\n":                 "print-config shows all",
		"config: x\n":                   `"config" is not a key`,
		"lanes: many\n":                 `f.yaml:1:1: lanes: "many" is not a number`,
		"lanes: 1e99\n":                 `lanes: "1e99" is not a number`,
		"lanes: 99999999999999999999\n": `lanes: "99999999999999999999" is too large`,
		"lanes: [1, 2]\n":               "lanes has one value, not a list",
		"lanes:\n  a: 1\n":              "f.yaml:1:1: lanes: neither a value nor a list",
		"lanes:\n":                      "neither a value nor a list",
		"cpus: [1, two]\n":              `cpus: "two" is not a number`,
		"cpus: [[1]]\n":                 "not a single value",
		"lanes: 1\nlanes: 2\n":          "f.yaml:2:1: ",
		"- lanes\n":                     "KEY: VALUE",
		"lanes: 1\n---\nlanes: 2\n":     "2 documents",
		"a: [1\n":                       "f.yaml:1:",
	} {
		v := newValues()
		err := v.read(text)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		if v.ip != "" {
			t.Errorf("%q: set %+v", text, v)
		}
	}
	if err := newValues().read(strings.Repeat("#", MaxFile+1)); err == nil {
		t.Error("a file of more than the bound was read")
	}
}

// isReadAgain prints the values and reads what was printed, which must be the same ones.
func (v *values) isReadAgain(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	if err := Print(&out, v.flags, "config"); err != nil {
		t.Fatal(err)
	}
	again := newValues()
	if err := again.read(out.String()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if c := Changes(v.flags, again.flags); len(c) != 0 {
		t.Fatalf("%v\n%s", c, out.String())
	}
}

// What Print writes is read as the same values.
func TestPrintIsReadAgain(t *testing.T) {
	v := newValues()
	if err := v.read(whole); err != nil {
		t.Fatal(err)
	}
	v.isReadAgain(t)
	var out bytes.Buffer
	if err := Print(&out, newValues().flags, "config"); err != nil || !strings.Contains(out.String(), "\n# port:\n") || strings.Contains(out.String(), "config") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestReloadKeepsCommandLineAndAdoptsLiveKeys(t *testing.T) {
	running := newValues("--lanes", "4")
	given := GivenOf(running.flags)
	if err := running.read(whole); err != nil {
		t.Fatal(err)
	}
	fresh := newValues()
	if err := given.To(fresh.flags); err != nil {
		t.Fatal(err)
	}
	if err := fresh.read("lanes: 7\nspin: 9us\nip: 10.0.0.1\nport: [eth1, 'eth 2']\ncpus: [2, 3]\nhuge-pages: true\n"); err != nil {
		t.Fatal(err)
	}
	done, restart, err := Adopt(running.flags, fresh.flags, []string{"spin"}, "config")
	if err != nil {
		t.Fatal(err)
	}
	if want := []Change{{"spin", "20µs", "9µs"}}; !slices.Equal(done, want) {
		t.Errorf("changed %v, want %v", done, want)
	}
	if want := []Change{{"ip", "10.50.0.254", "10.0.0.1"}}; !slices.Equal(restart, want) {
		t.Errorf("need a restart: %v, want %v", restart, want)
	}
	if running.spin != 9*time.Microsecond || running.ip != "10.50.0.254" || running.lanes != 4 {
		t.Errorf("runs: %+v", running)
	}
}

// FuzzRead: no file makes reading panic, and what is read can be printed and read again as the same.
func FuzzRead(f *testing.F) {
	for _, s := range []string{whole, "lanes: 1\nlanes: 2", "a: [1", "? [a]\n: b", "&a lanes: *a", "lanes: |\n  1\n", "port: [\"\\n\"]", "ip: '#'", "<<: {lanes: 1}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := newValues()
		done := make(chan error, 1)
		go func() { done <- v.read(text) }()
		select {
		case err := <-done:
			if err != nil {
				return
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("reading does not end")
		}
		v.isReadAgain(t)
	})
}
