package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	benchreport "gradnic/bench/report"
)

// cli runs a command line and returns its status and what it printed.
func benchCLI(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	status = run(context.Background(), args, strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

func TestBenchGenDryRun(t *testing.T) {
	to := []string{"bench", "gen", "--dry-run", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--sizes", "64", "--fcs", "--rate", "10Gbit/s-L1"}, "10Gbit/s-L1 is 14.88 Mpps over 1 queue\n"},
		{[]string{"--sizes", "64", "--fcs", "--rate", "50%", "--link", "10Gbit/s-L1", "--queues", "8"}, "50% is 7.44 Mpps over 8 queues"},
		{[]string{"--imix"}, "as fast as it goes"},
		{[]string{"--sizes", "64", "--fcs", "--rate", "1kpps", "-j"}, `"sizes":[{"frame":60,"l2":64,"l1":84}],"asked_rate":"1kpps","pps":1000,"queues":1}` + "\n"},
	} {
		status, out, errOut := benchCLI(t, append(to, tt.args...)...)
		if status != exitOK || !strings.Contains(out, tt.want) {
			t.Errorf("%q: status %d, %q, %q; want %q", tt.args, status, out, errOut, tt.want)
		}
	}
}

func TestBenchUsage(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"bench gen --rate 10Gbit/s --to 10.0.0.1", "which layer"},
		{"bench gen --flow tcp", `flow "tcp"`},
		{"bench gen --to here", "--to"},
		{"bench gen --dry-run --to 10.0.0.1 --to-mac 02:00:00:00:00:01 --sizes 20", "60 to 9014"},
		{"bench gen --dry-run --kind tcp --to 10.0.0.1", `generator "tcp"`},
		{"bench gen --dry-run --for -1s --to 10.0.0.1", "negative"},
		{"bench sink", "one of --interface and --listen"},
		{"bench device --interface x --function aggregate", "sink and reflect"},
		{"bench allreduce -b 1T", "-b"},
		{"bench allreduce --link 1Gbit/s-L1", "--link"},
		{"bench ndr --trial 0s", "--trial"},
		{"bench report", "accepts between 1 and 2"},
		{"bench ndr --devices lane,foo", `no contestant is named "foo": legal are lane`},
		{"bench ndr --loss 5,1", "rising"},
		{"bench ndr --precision -1", "precision"},
		{"bench ndr --sizes 1515", "frames of 1515 bytes: legal are 60 to 1514"},
		{"bench compare --sizes 5", "frames of 5 bytes"},
		{"bench compare --against foo", `"foo"`},
		{"bench compare --rounds -1", "-1 rounds"},
		{"bench compare --rounds 0", "--rounds 0: must be above 0"},
		{"bench scale --run 0s", "--run 0s: must be above 0"},
		{"bench engine --rounds 0", "--rounds 0: must be above 0"},
		{"bench engine --patience -1s", "a patience of -1s"},
		{"bench ndr --rounds 0", "--rounds 0: must be above 0"},
		{"bench engine --run -1s", "turns of -1s"},
		{"bench scale --run -1s", "turns of -1s"},
		{"pktgen script --interface x --port 70000", "--port 70000"},
	} {
		status, _, errOut := benchCLI(t, strings.Fields(tt.line)...)
		if status != exitUsage || !strings.Contains(errOut, tt.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", tt.line, status, errOut, exitUsage, tt.want)
		}
	}
}

func TestBenchReport(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"a.json", "b.json"} {
		r := benchreport.New("make x")
		k := float64(i + 1)
		r.Add(benchreport.Row{Name: "drop/64", Unit: "Mpps"}, []float64{k, k * 1.01, k * 1.02, k * 1.03, k * 1.04}, nil)
		if err := r.WriteFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	if status, out, _ := benchCLI(t, "bench", "report", a, b); status != exitOK || !strings.Contains(out, "| drop/64 | Mpps | 1.02 | 2.04 | +100.0 % | p=0.008 n=5+5 |") {
		t.Errorf("status %d:\n%s", status, out)
	}
	if status, out, _ := benchCLI(t, "bench", "report", a); status != exitOK || !strings.Contains(out, "| drop/64 | 1.02 Mpps |") {
		t.Errorf("status %d:\n%s", status, out)
	}
	page := filepath.Join(dir, "a.html")
	if status, _, errOut := benchCLI(t, "bench", "report", "--html", page, a); status != exitOK {
		t.Errorf("status %d: %s", status, errOut)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "drop/64") {
		t.Errorf("page: %v", err)
	}
	if status, _, errOut := benchCLI(t, "bench", "report", "--html", page, a, b); status != exitUsage || !strings.Contains(errOut, "one report") {
		t.Errorf("status %d: %s", status, errOut)
	}
}

// What was measured is left before the status says what it comes to: 3 for INVALID rows, and for missed goals, with --strict, 1.
func TestBenchVerdict(t *testing.T) {
	dir := t.TempDir()
	missed := benchreport.Row{Name: "reflect/64", Unit: "Mpps", Against: "c", Goal: 1.2}
	invalid := benchreport.Row{Name: "link", Unit: "Mpps", Note: "INVALID: too fast"}
	for _, tt := range []struct {
		name            string
		rows            []benchreport.Row
		strict          bool
		measured, shown int // exit status of measuring, and of bench report
		line, other     string
	}{
		{"good", nil, true, exitOK, exitOK, "", ""},
		{"missed", []benchreport.Row{missed}, false, exitOK, exitOK, "1 of 1 goals missed: reflect/64", ""},
		{"strict", []benchreport.Row{missed}, true, exitFailed, exitFailed, "1 of 1 goals missed: reflect/64", ""},
		{"invalid", []benchreport.Row{invalid}, false, exitInvalid, exitOK, "1 of 1 rows are INVALID: link", ""},
		{"both", []benchreport.Row{missed, invalid}, true, exitInvalid, exitInvalid, "1 of 2 rows are INVALID: link", "1 of 1 goals missed"},
	} {
		path, page := filepath.Join(dir, tt.name+".json"), filepath.Join(dir, tt.name+".md")
		if err := os.WriteFile(page, []byte("<!-- x -->\n<!-- /x -->\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		var text, errText strings.Builder
		cmd := &cobra.Command{Use: "x"}
		cmd.SetOut(&text)
		cmd.SetErr(&errText)
		o := output{json: path, html: filepath.Join(dir, tt.name+".html"), page: page, table: "x", strict: tt.strict}
		err := o.measure(cmd, func(place) (*benchreport.Report, error) {
			r := benchreport.New("make x")
			for _, row := range tt.rows {
				values, against := []float64{1}, []float64(nil)
				if row.Against != "" {
					against = []float64{1}
				}
				r.Add(row, values, against)
			}
			return r, nil
		})
		status := exitOK
		var inv *invalidError
		if errors.As(err, &inv) {
			status = exitInvalid
		} else if err != nil {
			status = exitFailed
		}
		said := errText.String()
		if err != nil {
			said += err.Error()
		}
		if status != tt.measured || !strings.Contains(said, tt.line) || !strings.Contains(said, tt.other) {
			t.Errorf("%s: status %d, %q; want %d, %q", tt.name, status, said, tt.measured, tt.line)
		}
		if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "Made by `make x`") {
			t.Errorf("%s: the page is not written: %q, %v", tt.name, b, err)
		}
		if _, err := os.Stat(o.html); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		args := []string{"bench", "report", path}
		if tt.strict {
			args = append(args, "--strict")
		}
		if status, _, errOut := benchCLI(t, args...); status != tt.shown || !strings.Contains(errOut, tt.line) || !strings.Contains(errOut, tt.other) {
			t.Errorf("%s: bench report ends with %d, %q; want %d, %q", tt.name, status, errOut, tt.shown, tt.line)
		}
	}
}

// A run that measured nothing leaves what an earlier one has left.
func TestBenchNothingMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte("an earlier run's"), 0o644); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	cmd := &cobra.Command{Use: "x"}
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	o := output{json: path}
	err := o.measure(cmd, func(place) (*benchreport.Report, error) { return benchreport.New("x"), errors.New("needs root") })
	if b, rerr := os.ReadFile(path); err == nil || rerr != nil || string(b) != "an earlier run's" || text.Len() > 0 {
		t.Errorf("%v, %v: %q, said %q", err, rerr, b, text.String())
	}
}

// A place that cannot be written to is said, and the others get the report.
func TestBenchWritesWhereItCan(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	cmd := &cobra.Command{Use: "x"}
	cmd.SetOut(&text)
	page := filepath.Join(dir, "no-lines.md")
	if err := os.WriteFile(page, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o := output{json: filepath.Join(page, "x.json"), html: filepath.Join(dir, "x.html"), page: page, table: "x"}
	err := o.measure(cmd, func(place) (*benchreport.Report, error) {
		r := benchreport.New("make x")
		r.Add(benchreport.Row{Name: "row", Unit: "Mpps"}, []float64{1}, nil)
		return r, nil
	})
	if err == nil || !strings.Contains(err.Error(), "not a directory") || !strings.Contains(err.Error(), "no line") || !strings.Contains(text.String(), "| row | 1 Mpps |") {
		t.Errorf("%v, printed %q", err, text.String())
	}
	if _, err := os.Stat(o.html); err != nil {
		t.Error(err)
	}
}

// No sockets send a hundred million datagrams a second.
func TestBenchGenInvalid(t *testing.T) {
	status, out, errOut := benchCLI(t, "bench", "gen", "--kind", "udp", "--to", "127.0.0.1", "--rate", "100000000pps", "--for", "50ms")
	if status != exitInvalid || !strings.Contains(errOut, "INVALID: the generator sent") || out == "" {
		t.Errorf("status %d: %q, %q", status, out, errOut)
	}
}

func TestBenchAgree(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	write := func(dir, name, command string, v float64) string {
		r := benchreport.New(command)
		r.Title = name
		r.Add(benchreport.Row{Name: "drop/64", Unit: "Mpps"}, []float64{v, v}, nil)
		path := filepath.Join(dir, name+".json")
		if err := r.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for i, dir := range dirs {
		write(dir, "near", "make near", 1+0.05*float64(i))
		write(dir, "far", "make far", 1+float64(i))
	}
	write(dirs[1], "late", "make late", 1)
	// The table of nccl-tests' form lies beside the reports.
	if err := os.WriteFile(filepath.Join(dirs[0], "t.json"), []byte(`{"schema":1,"rows":[{"transport":"native","size":4}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("<!-- agree -->\n<!-- /agree -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := benchCLI(t, "bench", "agree", dirs[0], dirs[1], "--page", page)
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| near (`make near`)", "| far (`make far`)", "| drop/64, Mpps | 1 | 2 | 100 % |", "late.json is in one of the folders only"} {
		if !strings.Contains(out, want) || !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s\nor\n%s", want, out, b)
		}
	}
	if status != exitOK || !strings.Contains(errOut, "1 of 2 figures differ by more than 10 %") || strings.Contains(out, "t.json") {
		t.Errorf("status %d: %q, %q", status, errOut, out)
	}
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{dirs[0], dirs[1], "--strict"}, exitFailed, "1 of 2 figures differ"},
		{[]string{dirs[0], dirs[1], "--strict", "--tolerance", "100"}, exitOK, "0 of 2 figures differ by more than 100 %"},
		{[]string{dirs[0], dirs[1], "--tolerance", "0"}, exitUsage, "--tolerance"},
		{[]string{dirs[0], filepath.Join(dirs[1], "far.json")}, exitFailed, "two files or two folders"},
		{[]string{filepath.Join(dirs[0], "near.json"), filepath.Join(dirs[1], "far.json")}, exitFailed, "not runs of the same measurement"},
		{[]string{dirs[0], t.TempDir()}, exitFailed, "no report of the same name"},
		{[]string{dirs[0], "nowhere"}, exitFailed, "no such file"},
		{[]string{dirs[0]}, exitUsage, "accepts 2 arg"},
	} {
		if status, _, errOut := benchCLI(t, append([]string{"bench", "agree"}, tt.args...)...); status != tt.status || !strings.Contains(errOut, tt.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", tt.args, status, errOut, tt.status, tt.want)
		}
	}
}

func TestPktgenPcap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.pcap")
	status, out, errOut := benchCLI(t, "pktgen", "pcap", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe", "--workers", "2", "--packets", "5", path)
	if status != exitOK || !strings.Contains(out, "10 frames") {
		t.Fatalf("status %d: %q %q", status, out, errOut)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if b, _, err := r.ReadPacketData(); err != nil || len(b) != 1076 {
		t.Errorf("a frame of %d bytes: %v", len(b), err)
	}
	bad := filepath.Join(t.TempDir(), "bad.pcap")
	if status, _, _ := benchCLI(t, "pktgen", "pcap", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe", "--workers", "9", bad); status == exitOK {
		t.Error("nine workers")
	}
	if _, err := os.Stat(bad); err == nil {
		t.Error("a file of nothing stayed behind")
	}
}
