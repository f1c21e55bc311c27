package levels

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gradnic/bench/report"
	"gradnic/internal/cpu"
)

type row struct {
	Level string
	Value float64
}

func (r row) MeasuredAt() string { return r.Level }

// child is set in the processes in which the test binary is a bench command.
const child = "GRADNIC_TEST_BENCH_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	flag.CommandLine = flag.NewFlagSet("bench", flag.ExitOnError) // without the test's own flags
	Command[row]{
		Name: "example", Rounds: 3,
		Measure: func(rounds int) ([]row, error) {
			r := row{Level: cpu.Level().String(), Value: float64(rounds)}
			if os.Getenv(child) == "liar" {
				r.Level = "another"
			}
			return []row{r}, nil
		},
		Add: func(r *report.Report, rows []row) {
			for _, m := range rows {
				r.Add(report.Row{Name: "x/" + m.Level, Unit: "rounds"}, []float64{m.Value}, nil)
			}
		},
	}.Main()
}

func command(t *testing.T, mode string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), child+"="+mode)
	return cmd
}

func TestEveryLevelIsMeasuredInItsOwnProcess(t *testing.T) {
	out, page := filepath.Join(t.TempDir(), "example.json"), filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n<!-- example -->\nold\n<!-- /example -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := command(t, "honest", "-out", out, "-page", page, "-rounds", "2").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "| x/off |") || strings.Contains(string(b), "old") {
		t.Errorf("the page: %v\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range r.Rows {
		got = append(got, row.Name)
		if row.Value != 2 {
			t.Errorf("%s measured %v rounds, asked for 2", row.Name, row.Value)
		}
	}
	for level := cpu.Off; level <= cpu.Machine(); level++ {
		want = append(want, "x/"+level.String())
	}
	if !slices.Equal(got, want) || r.Command != "make bench-example" {
		t.Errorf("rows %v of %q, want %v", got, r.Command, want)
	}
}

func TestRefusals(t *testing.T) {
	out := filepath.Join(t.TempDir(), "example.json")
	for _, tt := range []struct {
		mode string
		args []string
		code int
	}{
		{"liar", []string{"-out", out}, 1},
		{"honest", []string{"-out", out, "-rounds", "0"}, 2},
		{"honest", []string{"-out", out, "argument"}, 2},
	} {
		cmd := command(t, tt.mode, tt.args...)
		b, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != tt.code {
			t.Errorf("%s %v: %v, want exit status %d\n%s", tt.mode, tt.args, err, tt.code, b)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s %v left a report", tt.mode, tt.args)
		}
	}
}
