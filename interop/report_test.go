package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// A case that failed leaves a capture: every frame of it, with who sent it.
func TestCaptureOfFailure(t *testing.T) {
	s, o := load(t, "switchml"), options(t, 64)
	o.Only, o.Keep = []string{"wraps"}, t.TempDir()
	r, err := Run(context.Background(), s, newRefCard("saturates"), "card", o)
	if err != nil {
		t.Fatal(err)
	}
	x := r.Results[0]
	if x.Verdict != Failed || !strings.Contains(x.Detail, "payload from byte 0 (word 0): want 80000000, got 7fffffff") {
		t.Fatalf("%v: %s", x.Verdict, x.Detail)
	}
	f, err := os.Open(x.Capture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	sent, got := 0, 0
	for {
		data, _, opts, err := n.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || len(data) != 308 || len(opts.Comments) != 1 {
			t.Fatalf("%v, %d bytes, %v", err, len(data), opts.Comments)
		}
		if strings.HasPrefix(opts.Comments[0], "the kit sent it, from worker") {
			sent++
		} else if opts.Comments[0] == "the card sent it" {
			got++
		}
	}
	if sent != 4 || got != 4 { // two to wash the slot, two of the case; a result to each of two workers, twice
		t.Errorf("%d sent, %d got", sent, got)
	}
	var matrix, tap bytes.Buffer
	if err := errors.Join(Matrix(&matrix, r), TAP(&tap, r)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(matrix.String(), "switchml/wraps  failed") || !strings.Contains(tap.String(), "not ok 1 - switchml/64/wraps\n  ---\n") {
		t.Errorf("%s%s", matrix.String(), tap.String())
	}
}

// What a target cannot do is unsupported, and says what.
func TestUnsupported(t *testing.T) {
	l, o := short{newRefCard("")}, options(t, 64)
	s, err := Parse("x.yaml", []byte("suite: x\nlayout: switchml\nport: 1\ncases:\n  - name: waits\n    why: b\n    steps: [{pause: 5}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), s, l, "card", o)
	if err != nil || r.Count(Unsupported) != 1 || !strings.Contains(r.Results[0].Detail, "the target has no clock") {
		t.Errorf("%v %+v", err, r)
	}
	s = load(t, "switchml")
	o.Only, o.Captures = []string{"frame-9014", "recorded-64", "sum"}, ""
	r, err = Run(context.Background(), s, l, "card", o)
	if err != nil || r.Count(Unsupported) != 2 || r.Count(Passed) != 1 {
		t.Fatalf("%v %+v", err, r)
	}
	for _, x := range r.Results {
		if x.Case == "frame-9014" && !strings.Contains(x.Detail, "a frame of 9014 bytes, and the target takes 1514") {
			t.Error(x.Detail)
		}
	}
	if _, err := Run(context.Background(), s, l, "card", Options{Only: []string{"nothing"}}); !errors.Is(err, ErrUnknown) {
		t.Error("a case that there is not")
	}
}

// short is a card with a link of 1514 bytes.
type short struct{ *refCard }

func (short) Limits() Limits { return Limits{Longest: 1514} }

// A suite that cannot be meant is refused.
func TestSuiteErrors(t *testing.T) {
	head := "suite: x\nlayout: switchml\nport: 1\ncases:\n  - name: a\n    why: b\n    steps:\n"
	for text, fails := range map[string]string{
		"suite: x\nlayout: switchml\n":                                  "there is no suite in it",
		"suite: x\nlayout: none\ncases: [{name: a}]\n":                  `layout "none"`,
		head + "      - {take: 1, pause: 3}\n":                          "step 1: one of send",
		head + "      - send: {values: {}}\n":                           "from a worker or to one",
		head + "      - send: {from: 0, fields: {slto: 1}}\n":           `field "slto": layout switchml has none`,
		head + "      - send: {from: 0, any: [nothing]}\n":              `any: "nothing": no such part`,
		head + "      - take: 1\n    call: {count: -5}\n":               "case a: a call of -5 elements",
		head + "      - send: {from: -1}\n":                             "step 1: worker -1",
		head + "      - expect: [{to: 255}]\n":                          "step 1: worker 255",
		head + "      - {send: {from: 0}, times: 100001}\n":             "step 1: times, take",
		head + "      - pause: 999999999\n":                             "step 1: times, take",
		head + "      - array: {segments: 1000000000}\n":                "step 1: array of 1000000000",
		head + "      - send: {from: 0, size: -5}\n":                    "step 1: a frame of -5 bytes",
		head + "      - send: {from: 0, body: b}\n":                     `body "b": there is none`,
		head + "      - send: {form: 0}\n":                              "unknown field",
		head + "      - take: 1\n  - name: a\n    steps: [{take: 1}]\n": "each has a name of its own",
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), fails) {
			t.Errorf("%q: %v, want %q", text, err, fails)
		}
	}
}

// sendLog notes when frames were sent.
type sendLog struct {
	at     []time.Time
	frames [][]byte
}

func (l *sendLog) Send(f []byte) error {
	l.at, l.frames = append(l.at, time.Now()), append(l.frames, bytes.Clone(f))
	return nil
}

// Replay keeps distances, divided by the speed; leaves out what was cut or is too long; ends with its context.
func TestReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pcap")
	var file bytes.Buffer
	w := pcapgo.NewWriterNanos(&file)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1700000000, 0)
	for i := range 5 {
		data := binary.BigEndian.AppendUint32(make([]byte, 60), uint32(i))
		ci := gopacket.CaptureInfo{Timestamp: start.Add(time.Duration(i) * 20 * time.Millisecond), CaptureLength: len(data), Length: len(data)}
		switch i {
		case 1:
			ci.Length = 1000
		case 2:
			data = make([]byte, 2000)
			ci.CaptureLength, ci.Length = 2000, 2000
		}
		if err := w.WritePacket(ci, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		o        ReplayOptions
		atLeast  time.Duration
		noLonger time.Duration
	}{
		{ReplayOptions{}, 80 * time.Millisecond, 20 * time.Second},
		{ReplayOptions{Speed: 4}, 20 * time.Millisecond, 20 * time.Second},
		{ReplayOptions{Max: true}, 0, 70 * time.Millisecond},
	} {
		tt.o.Longest = 1514
		var log sendLog
		r, err := Replay(context.Background(), path, &log, tt.o)
		// Others use this machine too: what took them longer is made again.
		for range 20 {
			if err != nil || len(log.at) != 3 || log.at[2].Sub(log.at[0]) <= tt.noLonger {
				break
			}
			log = sendLog{}
			r, err = Replay(context.Background(), path, &log, tt.o)
		}
		if err != nil || r.Frames != 3 || r.Cut != 1 || r.Long != 1 || r.Bytes != 3*64 || r.Span != 80*time.Millisecond || len(log.frames) != 3 || log.frames[2][63] != 4 {
			t.Fatalf("%+v %v", r, err)
		}
		if took := log.at[2].Sub(log.at[0]); took < tt.atLeast-time.Millisecond || took > tt.noLonger {
			t.Errorf("speed %v, max %v: %v", tt.o.Speed, tt.o.Max, took)
		}
	}
	r, err := Replay(context.Background(), path, &sendLog{}, ReplayOptions{Count: 1})
	if err != nil || r.Frames != 1 {
		t.Errorf("%+v %v", r, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if r, err := Replay(ctx, path, &sendLog{}, ReplayOptions{Speed: 0.001}); !errors.Is(err, context.DeadlineExceeded) || r.Frames != 1 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := Replay(context.Background(), "nothing.pcap", &sendLog{}, ReplayOptions{}); err == nil {
		t.Error("a file that there is not")
	}
	if err := os.WriteFile(path, file.Bytes()[:file.Len()-1], 0o600); err != nil {
		t.Fatal(err)
	}
	r, err = Replay(context.Background(), path, &sendLog{}, ReplayOptions{Max: true, Longest: 1514})
	if r.Frames != 2 || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), "replay "+path+": frame 5: ") || !strings.HasSuffix(err.Error(), " (2 frames were sent before)") {
		t.Errorf("a capture without its end: %+v %v", r, err)
	}
	if err := os.WriteFile(path, []byte("no capture at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Replay(context.Background(), path, &sendLog{}, ReplayOptions{}); err == nil {
		t.Error("a file that is no capture")
	}
}

// Over a link, what is replayed arrives as it is.
func TestReplayOverVeth(t *testing.T) {
	o := options(t, 64)
	c := newCable(t, 1500)
	var card *Link
	if err := c.card.Do(func() (err error) { card, err = OpenLink("card"); return err }); err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	var kit *Link
	if err := c.kit.Do(func() (err error) { kit, err = OpenLink("kit"); return err }); err != nil {
		t.Fatal(err)
	}
	defer kit.Close()
	path := filepath.Join(o.Captures, "hello-64el-w0.pcap")
	r, err := Replay(context.Background(), path, kit, ReplayOptions{Max: true, Count: 200})
	if err != nil || r.Frames != 200 {
		t.Fatalf("%+v %v", r, err)
	}
	want, err := readPcap(path)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for i := range 200 {
		n, err := card.Recv(buf, time.Now().Add(10*time.Second))
		if err != nil || !bytes.Equal(buf[:n], want[i].Data) {
			t.Fatalf("frame %d: %v\n%x\n%x", i, err, buf[:n], want[i].Data)
		}
	}
	tagged := append(bytes.Clone(want[0].Data[:12]), append([]byte{0x81, 0, 0, 5}, want[0].Data[12:]...)...)
	if err := kit.Send(tagged); err != nil {
		t.Fatal(err)
	}
	if n, err := card.Recv(buf, time.Now().Add(10*time.Second)); err != nil || !bytes.Equal(buf[:n], tagged) {
		t.Errorf("%v, the tag is not there: %x", err, buf[:n])
	}
}

// A suite that has tested nothing is told, also beside one that has; a size that tests nothing is none's fault.
func TestUntested(t *testing.T) {
	report := func(suite string, elements int, verdicts ...Verdict) *Report {
		r := &Report{Suite: suite, Elements: elements}
		for _, v := range verdicts {
			r.Results = append(r.Results, Result{Case: "c", Verdict: v, Detail: "no calls\nmore"})
		}
		return r
	}
	for _, tt := range []struct {
		reports []*Report
		want    string
	}{
		{[]*Report{report("a", 64, Passed, Unsupported), report("a", 256, Unsupported)}, ""},
		{[]*Report{report("a", 64, Failed)}, ""},
		{[]*Report{report("a", 64, Passed), report("b", 64, Unsupported, Unsupported), report("b", 256, Unsupported)}, "interop: suite b: nothing was tested: all cases are unsupported, the first because: no calls"},
		{[]*Report{report("a", 64)}, "interop: suite a: nothing was tested: no case is for this size"},
	} {
		got := ""
		if err := Untested(tt.reports...); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
