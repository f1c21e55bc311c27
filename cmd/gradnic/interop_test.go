package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gradnic/internal/captures"
)

// A suite against memory: the matrix on standard output, TAP and JUnit in files; exit status 1 when a case fails.
func TestInteropRun(t *testing.T) {
	dir := t.TempDir()
	tap, junit := filepath.Join(dir, "a.tap"), filepath.Join(dir, "a.xml")
	recorded, err := captures.Dir()
	if err != nil {
		t.Fatal(err)
	}
	gradnic(t, "", "interop", "run", "--suite", "switchml,native", "--target", "mem", "--captures", recorded, "--tap", tap, "--junit", junit).
		want(t, exitOK, "switchml, 256 elements a packet, mem: ")
	text, err := os.ReadFile(tap)
	if err != nil || !strings.HasPrefix(string(text), "TAP version 13\n1..") || strings.Contains(string(text), "not ok") || !strings.Contains(string(text), " - native/64/sum\n") {
		t.Errorf("%v %.300s", err, text)
	}
	text, err = os.ReadFile(junit)
	var doc struct {
		Suites []struct {
			Tests    int        `xml:"tests,attr"`
			Failures int        `xml:"failures,attr"`
			Cases    []struct{} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err != nil || xml.Unmarshal(text, &doc) != nil || len(doc.Suites) != 4 || doc.Suites[0].Tests < 40 || doc.Suites[0].Failures != 0 || len(doc.Suites[0].Cases) != doc.Suites[0].Tests {
		t.Errorf("%v %+v", err, doc)
	}
	// A suite that asks for what no switch does.
	bad := filepath.Join(dir, "bad.yaml")
	page := "suite: bad\nlayout: switchml\nport: 0xBEE0\ncases:\n  - name: wrong\n    why: two and two are five\n    steps:\n" +
		"      - send: {from: 0, fields: {slot: 0}, values: {start: 2}}\n      - send: {from: 1, fields: {slot: 0}, values: {start: 2}}\n" +
		"      - expect:\n          - {to: 0, fields: {slot: 0}, values: {start: 5}}\n          - {to: 1, fields: {slot: 0}, values: {start: 4}}\n"
	if err := os.WriteFile(bad, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	r := gradnic(t, "", "interop", "run", "--suite", bad, "--target", "mem", "--elements", "64", "--keep", dir)
	if r.code != exitFailed || !strings.Contains(r.out, "payload from byte 0 (word 0): want 00000005, got 00000004") || !strings.Contains(r.out, "^^") {
		t.Errorf("%d\n%s%s", r.code, r.out, r.err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bad-64-wrong.pcapng")); err != nil || info.Size() < 4*308 {
		t.Errorf("%v %v", info, err)
	}
	r = gradnic(t, "", "interop", "run", "--suite", bad, "--target", "mem", "--elements", "64", "-j")
	var reports []struct {
		Results []struct{ Case, Verdict string }
	}
	if err := json.Unmarshal([]byte(r.out), &reports); err != nil || len(reports) != 1 || reports[0].Results[0].Verdict != "failed" {
		t.Errorf("%v %s", err, r.out)
	}
	// Nothing tested is no success: here the recorded packets are missing.
	r = gradnic(t, "", "interop", "run", "--target", "mem", "--suite", "switchml", "--case", "recorded-64")
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if last := lines[len(lines)-1]; r.code != exitFailed || !strings.Contains(last, "suite switchml: nothing was tested: all cases are unsupported, the first because: ") {
		t.Errorf("%d %q", r.code, r.err)
	}
	gradnic(t, "", "interop", "run", "--suite", "switchml").want(t, exitUsage, "--target")
	gradnic(t, "", "interop", "run", "--suite", "none", "--target", "mem").want(t, exitUsage, `suite "none": there are accl, native`)
	gradnic(t, "", "interop", "run", "--suite", "switchml,none", "--target", "mem").want(t, exitUsage, "there are accl, native") // before anything runs
	gradnic(t, "", "interop", "run", "--suite", "switchml", "--case", "sum,none", "--target", "mem").want(t, exitUsage, `suite switchml has no case "none"`)
	gradnic(t, "", "interop", "run", "--suite", "./none.yaml", "--target", "mem").want(t, exitFailed, "no such file")
	gradnic(t, "", "interop", "run", "--suite", "native", "--layout", "switchml", "--target", "mem").want(t, exitFailed, "has rules switchml")
	gradnic(t, "", "interop", "run", "--suite", "switchml", "--target", "exec:false").want(t, exitFailed, "ended")
	gradnic(t, "", "interop", "run", "--suite", "switchml", "--target", "nosuchdev0").want(t, exitFailed, "nosuchdev0")
	sum := []string{"interop", "run", "--suite", "switchml", "--target", "mem", "--case", "sum"}
	for _, x := range []struct {
		args   string
		status int
		says   string
	}{
		{"--slots 0", exitUsage, "numbers from 1"}, {"--elements 0", exitUsage, "numbers from 1"}, {"--tap - -j", exitUsage, "give TAP a file"},
		{"--timeout -1s", exitFailed, "timeout -1s"}, {"--card-ip 10.50.0.1", exitFailed, "worker 0 is"}, {"--call true", exitFailed, "card on an interface"},
		{"--captures none", exitFailed, "gradnic interop run: folder of recorded packets: stat none"}, {"--captures interop_test.go", exitFailed, "is no folder"},
	} {
		r := gradnic(t, "", append(slices.Clone(sum), strings.Fields(x.args)...)...).want(t, x.status, x.says)
		if r.out != "" {
			t.Errorf("%s: %s", x.args, r.out)
		}
	}
	// A card that dies in the middle has passed and failed what it did until then. This one answers with what it was sent.
	r = gradnic(t, "", "interop", "run", "--suite", "switchml", "--elements", "64", "--target", "exec:dd bs=1 count=2600 status=none")
	if r.code != exitFailed || !strings.Contains(r.err, "case both-sets: before the case: target exec: the command ended") ||
		!strings.Contains(r.out, "0 passed, 3 failed, 0 unsupported") {
		t.Errorf("what was found is lost: %d, %s%s", r.code, r.err, r.out)
	}
}

// Each field of a recorded frame is shown; a page that is wrong says where.
func TestInteropLayout(t *testing.T) {
	recorded, err := captures.Dir()
	if err != nil {
		t.Fatal(err)
	}
	r := gradnic(t, "", "interop", "layout", "check", "switchml", "--pcap", filepath.Join(recorded, "hello-64el-w0.pcap"), "--count", "3")
	for _, want := range []string{"frame 1, 308 bytes, 02:00:00:00:01:00 > 06:00:00:00:00:fe", "48.0    set", "(version)", "(exponent0)", "payload          64 int32:", "3 frames: 3 of layout switchml, 0 of them not right, 0 of others"} {
		if r.code != exitOK || !strings.Contains(r.out, want) {
			t.Fatalf("no %q in\n%s%s", want, r.out, r.err)
		}
	}
	gradnic(t, "", "interop", "layout", "check", "inhouse").want(t, exitOK, "EtherType 0x88b5")
	page := gradnic(t, "", "interop", "layout", "show", "inhouse").want(t, exitOK, "layout: inhouse").out
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(page, "width: 32, meaning: round", "width: 99, meaning: round", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	gradnic(t, "", "interop", "layout", "check", file).want(t, exitFailed, "mine.yaml:45: field turn: 99 bits")
	r = gradnic(t, "", "interop", "layout", "check", "inhouse", "--pcap", filepath.Join(recorded, "hello-64el-w0.pcap"))
	if r.code != exitFailed || !strings.Contains(r.err, "no frame of EtherType 0x88b5 in 2048") {
		t.Errorf("%d %s", r.code, r.err)
	}
	gradnic(t, "", "interop", "layout", "show", "other").want(t, exitFailed, "accl, atp, inhouse, native, ring, switchml")
}

// A NIC takes layouts, a job names one, and what it shows has its name.
func TestRunLayout(t *testing.T) {
	gradnic(t, "", "run", "--port", "mem:a", "--ip", "10.50.0.254", "--layout", "inhouse", "--check").want(t, exitOK, "the configuration is right")
	gradnic(t, "", "run", "--port", "mem:a", "--ip", "10.50.0.254", "--layout", "atp", "--check").want(t, exitUsage, "layout atp has rules none")
	gradnic(t, "", "run", "--port", "mem:a", "--ip", "10.50.0.254", "--layout", "nothing", "--check").want(t, exitFailed, "there are accl")
	api := "--api=" + serve(t)
	gradnic(t, "", "install", "job", "x", "--workers", "2", "--layout", "inhouse", api).want(t, exitFailed, `no layout "inhouse"`)
}

func TestInteropReplayUsage(t *testing.T) {
	gradnic(t, "", "interop", "replay", "x.pcap").want(t, exitUsage, "--interface")
	gradnic(t, "", "interop", "replay", "x.pcap", "--interface", "lo", "--speed", "-1").want(t, exitUsage, "--speed")
	gradnic(t, "", "interop", "replay", "x.pcap", "--interface", "lo", "--count", "-1").want(t, exitUsage, "--count")
	gradnic(t, "", "interop", "replay", "x.pcap", "--interface", "nosuchdev0").want(t, exitFailed, "nosuchdev0")
}

// docs/json.md names every key of what the kit prints for machines, and of what bench gen plans and sends.
func TestJSONDocumentKeys(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		section string
		args    string
	}{
		{"## `gradnic interop run -j`", "interop run --suite accl,switchml --target mem -j"},
		{"## `gradnic bench gen -j`", "bench gen --kind udp --to 127.0.0.1 --for 10ms -j"},
		{"## `gradnic bench gen -j`", "bench gen --dry-run --to 127.0.0.1 --to-mac 02:00:00:00:00:01 --rate 50% --link 1Gbit/s-L1 -j"},
	} {
		_, text, found := strings.Cut(string(page), x.section)
		text, _, _ = strings.Cut(text, "\n## ")
		if !found {
			t.Fatalf("docs/json.md has no section %s", x.section)
		}
		r := gradnic(t, "", strings.Fields(x.args)...)
		var document any
		if err := json.Unmarshal([]byte(r.out), &document); err != nil {
			t.Fatalf("%s: %v: %s%s", x.args, err, r.out, r.err)
		}
		var check func(any)
		check = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				for key, inner := range v {
					if !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, "`"+key+"[]`") {
						t.Errorf("%s: docs/json.md does not say what %q is", x.args, key)
					}
					check(inner)
				}
			case []any:
				for _, inner := range v {
					check(inner)
				}
			case nil:
				t.Errorf("%s: null in %s", x.args, r.out)
			}
		}
		check(document)
	}
}
