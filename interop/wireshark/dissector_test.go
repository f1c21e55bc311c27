package wireshark

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/pcapng"
	"gradnic/internal/captures"
	"gradnic/internal/tooltest"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

const script = "gradnic.lua"

// tshark runs tshark with the dissector, and nothing of the user's, and returns what it prints.
func tshark(t *testing.T, args ...string) string {
	t.Helper()
	program := tooltest.Need(t, "tshark")
	path, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "-n", "-X", "lua_script:"+path)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || strings.Contains(errs.String(), "gradnic.lua") {
		t.Fatalf("tshark %v: %v\n%s", args, err, errs.String())
	}
	return out.String()
}

// protocolOf is the dissector's name for the frames of a capture.
func protocolOf(file string) string {
	switch name, _, _ := strings.Cut(filepath.Base(file), "."); name {
	case "native":
		return "gradnic"
	case "accl":
		return "accl"
	case "ring", "bump":
		return "grad" + name
	}
	return "switchml"
}

// fieldNames are the dissector's fields, and the kinds of their values.
func fieldNames(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for _, line := range strings.Split(tshark(t, "-G", "fields"), "\n") {
		w := strings.Split(line, "\t")
		if len(w) < 4 || w[0] != "F" {
			continue
		}
		protocol, _, _ := strings.Cut(w[2], ".")
		switch protocol {
		case "switchml", "gradnic", "accl", "gradring", "gradbump":
			names[protocol] = append(names[protocol], w[2])
		}
	}
	return names
}

// number makes a number decimal, whatever base it is shown in, and cuts floats to the digits that are compared.
func number(field, s string) string {
	switch {
	case strings.HasPrefix(s, "0x"):
		if v, err := strconv.ParseUint(s[2:], 16, 64); err == nil {
			return strconv.FormatUint(v, 10)
		}
	case s == "True":
		return "1"
	case s == "False":
		return "0"
	case field == "gradnic.float32":
		if v, err := strconv.ParseFloat(s, 64); err == nil {
			return strconv.FormatFloat(v, 'g', 6, 32)
		}
	case field == "gradnic.float64":
		if v, err := strconv.ParseFloat(s, 64); err == nil {
			return strconv.FormatFloat(v, 'g', 12, 64)
		}
	}
	return s
}

// Every field of every frame of every capture is what the Go decoders read, and every field is in some frame. Frames are
// read once and, as Wireshark does, twice.
func TestEveryField(t *testing.T) {
	names := fieldNames(t)
	if len(names) != 5 {
		t.Fatalf("fields of %d protocols", len(names))
	}
	seen := map[string]bool{}
	for _, file := range captures.Files() {
		protocol := protocolOf(file)
		path, err := captures.Path(file)
		if err != nil {
			t.Fatal(err)
		}
		frames, err := captures.Frames(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, passes := range []string{"", "-2"} {
			if passes != "" && protocol == "switchml" {
				continue // keeps nothing from frame to frame
			}
			args := []string{"-r", path, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=,"}
			if passes != "" {
				args = append(args, passes)
			}
			for _, n := range names[protocol] {
				args = append(args, "-e", n)
			}
			lines := strings.Split(strings.TrimSuffix(tshark(t, args...), "\n"), "\n")
			if len(lines) != len(frames) {
				t.Fatalf("%s: %d lines for %d frames", file, len(lines), len(frames))
			}
			state := acclState{begins: map[netip.AddrPort]int{}}
			for i, line := range lines {
				got := shown{}
				for k, cell := range strings.Split(line, "\t") {
					if cell == "" {
						continue
					}
					name := names[protocol][k]
					seen[name] = true
					for _, v := range strings.Split(cell, ",") {
						got[name] = append(got[name], number(name, v))
					}
				}
				want := expect(t, protocol, i+1, frames[i], &state)
				for _, name := range names[protocol] {
					if !slices.Equal(got[name], want[name]) {
						t.Errorf("%s %s, frame %d, %s: %v, want %v", file, passes, i+1, name, got[name], want[name])
					}
					delete(want, name)
				}
				if len(want) > 0 {
					t.Fatalf("%s: the dissector has no field for %v", file, want)
				}
				if t.Failed() {
					t.FailNow()
				}
			}
		}
	}
	for _, list := range names {
		for _, n := range list {
			if !seen[n] && !strings.HasSuffix(n, ".fault") {
				t.Errorf("no frame of the captures has field %s", n)
			}
		}
	}
}

// What the wire packages refuse is marked with the name of the drop reason, and does not stop the dissector.
func TestFaults(t *testing.T) {
	marked := map[string]bool{}
	var frames [][]byte
	for _, file := range []string{"switchml/hello-64el-w0.pcap", "captures/native.pcap", "captures/accl.pcap", "captures/ring.pcap", "captures/bump.pcap"} {
		all, err := captures.Frames(file)
		if err != nil {
			t.Fatal(err)
		}
		offset := 42
		if protocolOf(file) == "gradbump" {
			offset = 14
		}
		for i := range min(len(all), 4) {
			for at := offset; at < min(len(all[i]), offset+48); at++ {
				for _, mask := range []byte{0x55, 0x02, 0x04, 0x0d} {
					f := bytes.Clone(all[i])
					f[at] ^= mask
					frames = append(frames, f)
				}
			}
		}
	}
	path := filepath.Join(t.TempDir(), "faults.pcap")
	if err := os.WriteFile(path, pcap(t, frames), 0o600); err != nil {
		t.Fatal(err)
	}
	out := tshark(t, "-r", path, "-T", "fields", "-e", "_ws.expert.message")
	for _, line := range strings.Split(out, "\n") {
		for _, m := range strings.Split(line, ",") {
			marked[m] = true
			if strings.Contains(m, "Lua Error") || strings.Contains(m, "Dissector bug") {
				t.Fatal(m)
			}
		}
	}
	for _, m := range []string{
		"switchml-message-type", "switchml-size-unknown", "switchml-length", "native-version", "native-kind", "native-length", "native-reserved",
		"native-type", "native-codec", "accl-not-a-header", "accl-wrong-piece", "ring-version", "ring-kind", "ring-length",
		"bump-version", "bump-kind", "bump-checksum", "bump-short",
	} {
		if !marked[m] {
			t.Errorf("no frame is marked %s", m)
		}
	}
}

// A report of a worker that has results without values says where its bitmap begins; one that gradnic refuses is marked.
func TestReportWithoutValues(t *testing.T) {
	from, to := native.Endpoint{MAC: mac(1), IP: ip(2), Port: 4001}, native.Endpoint{MAC: mac(0xfe), IP: ip(254), Port: native.Port}
	var frames [][]byte
	add := func(kind native.Kind, flags native.Flags, payload []byte) {
		f := make([]byte, native.FrameLen(len(payload)))
		copy(f[native.ValuesOffset:], payload)
		native.PutFrame(f, &from, &to, &native.Header{Kind: kind, Flags: flags, Job: 7, Rank: 1, Slot: 3}, len(payload))
		frames = append(frames, f)
	}
	far := withoutValues[2]
	far.Ahead++
	farther := withoutValues[0]
	farther.Back, farther.Ahead = 1<<32-1, 1
	whole := withoutValues[0].body()
	add(native.Report, native.FlagNoValues, whole)
	add(native.Report, 0, whole) // the other form: all that follows the nonce is the bitmap
	add(native.Report, native.FlagNoValues, whole[:15])
	add(native.Report, native.FlagNoValues, far.body())
	add(native.Report, native.FlagNoValues, farther.body())
	add(native.Report, native.FlagNoValues, make([]byte, native.ReportLen+native.ReportSpanLen+native.MaxSlots/8+1))
	add(native.Contribution, native.FlagNoValues, nil)
	path := filepath.Join(t.TempDir(), "reports.pcap")
	if err := os.WriteFile(path, pcap(t, frames), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-r", path, "-T", "fields", "-E", "separator=|"}
	for _, f := range []string{"gradnic.back", "gradnic.ahead", "gradnic.have", "gradnic.have_values", "_ws.expert.message", "_ws.col.Info"} {
		args = append(args, "-e", f)
	}
	const text = "report job 7 rank 1 round 0 slot 3"
	want := []string{
		"3|11||0780||" + text + ", 3 back, 11 ahead, some without values",
		"||000000030000000b0780|||" + text,
		"||||native-body|" + text,
		"8191|2||01|native-body|" + text + ", 8191 back, 2 ahead, some without values",
		"4294967295|1||0780|native-body|" + text + ", 4294967295 back, 1 ahead, some without values",
		"||||native-body|" + text,
		"|||||contribution job 7 rank 1 round 0 slot 3, takes no values, without values",
	}
	if got := strings.Split(strings.TrimSpace(tshark(t, args...)), "\n"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for i, f := range frames[:6] {
		var p inet.Packet
		if inet.Parse(f, &p) != inet.OK {
			t.Fatal(i)
		}
		v, fault := native.Validate(p.Payload)
		if fault != native.OK {
			t.Fatal(fault)
		}
		if _, ok := native.ParseReport(v.Payload(), v.Flags()); ok == strings.Contains(want[i], "native-body") {
			t.Errorf("frame %d: the wire package says %v", i+1, ok)
		}
	}
}

// What gradnic capture says of each frame is shown as its comment, and is there to filter by.
func TestCaptureComments(t *testing.T) {
	frames, err := captures.Frames("switchml/hello-64el-w0.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := pcapng.NewWriter(&b, []string{"eth0", "eth1"}, "test", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*apiv1.CapturedFrame{
		{Port: 0, Stage: apiv1.CaptureStage_CAPTURE_STAGE_RX, Time: timestamppb.Now(), Data: frames[0]},
		{Port: 1, Lane: 3, Stage: apiv1.CaptureStage_CAPTURE_STAGE_DROP, Reason: "unknown-worker", Time: timestamppb.Now(), Data: frames[0]},
	} {
		if err := w.Frame(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	fields := []string{"-T", "fields", "-e", "frame.comment", "-e", "frame.interface_name", "-e", "_ws.col.Protocol"}
	want := "stage=rx port=eth0 lane=0\teth0:rx\tSwitchML\nstage=drop port=eth1 lane=3 reason=unknown-worker\teth1:drop\tSwitchML\n"
	if got := tshark(t, append([]string{"-r", path}, fields...)...); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got := tshark(t, append([]string{"-r", path, "-Y", `frame.comment contains "reason=unknown-worker" && switchml.slot == 0`}, fields...)...)
	if _, drop, _ := strings.Cut(want, "\n"); got != drop {
		t.Errorf("filtered by comment: %q, want %q", got, drop)
	}
}
