package dataplane

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"gradnic/internal/captures"
)

func writeCapture(t *testing.T, ng bool, frames [][]byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "in.pcap")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var write func(gopacket.CaptureInfo, []byte) error
	if ng {
		w, err := pcapgo.NewNgWriter(f, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Flush()
		write = w.WritePacket
	} else {
		w := pcapgo.NewWriter(f)
		if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
			t.Fatal(err)
		}
		write = w.WritePacket
	}
	for i, b := range frames {
		if err := write(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

func readCapture(t *testing.T, name string) (frames [][]byte) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, _, err := r.ReadPacketData()
		if err == io.EOF {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, b)
	}
}

// TestCapturesThroughFiles reads the requests of both workers from one capture and writes the replies to another; for
// each worker they are those recorded, in order.
func TestCapturesThroughFiles(t *testing.T) {
	for _, ng := range []bool{false, true} {
		steps, err := captures.Load(64)
		if err != nil {
			t.Fatal(err)
		}
		var in [][]byte
		var want [captures.Workers][][]byte
		for _, s := range steps {
			if s.Request {
				in = append(in, s.Frame)
			} else {
				want[s.Worker] = append(want[s.Worker], s.Frame)
			}
		}
		out := filepath.Join(t.TempDir(), "out.pcap")
		p := &PcapPort{Name: "file", Read: writeCapture(t, ng, in), Write: out}
		n, err := New(Config{MAC: captures.SwitchMAC(), IP: captures.SwitchIP()}, p)
		if err != nil {
			t.Fatal(err)
		}
		install(t, n, capturesJob(64)) // the capture is read from the start on
		if err := n.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if err := p.Err(); err != nil {
			t.Fatal(err)
		}
		if err := n.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		s := n.Snapshot()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if s.Total.Contributed != uint64(len(in)) || s.Total.ReplicasDropped() != 0 {
			t.Fatalf("%+v", s.Total)
		}
		var got [captures.Workers][][]byte
		for _, f := range readCapture(t, out) {
			for r := range got {
				if mac := captures.WorkerMAC(r); bytes.Equal(f[:6], mac[:]) {
					got[r] = append(got[r], f)
				}
			}
		}
		for r := range want {
			if len(got[r]) < len(want[r]) {
				t.Fatalf("worker %d: %d replies, %d recorded", r, len(got[r]), len(want[r]))
			}
			for i := range want[r] {
				if !bytes.Equal(got[r][i], want[r][i]) {
					t.Fatalf("worker %d: reply %d differs", r, i)
				}
			}
		}
	}
}

// TestPcapErrors: a file that is missing, is no capture, or ends early.
func TestPcapErrors(t *testing.T) {
	start := func(p *PcapPort) (*NIC, error) {
		n, err := New(testConfig(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Stop(context.Background()) })
		return n, n.Start(context.Background())
	}
	if _, err := start(&PcapPort{Name: "p", Read: "/nonexistent"}); err == nil {
		t.Error("a missing file")
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("no capture at all, but long enough to be one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := start(&PcapPort{Name: "p", Read: bad}); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("no capture: %v", err)
	}
	whole, err := os.ReadFile(writeCapture(t, false, [][]byte{make([]byte, 60), make([]byte, 60)}))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, whole[:len(whole)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	p := &PcapPort{Name: "p", Read: bad}
	n, err := start(p)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() == nil {
		t.Error("a cut file")
	}
	waitReceived(t, n, 1)
	check(t, n)
	// Frames that do not fit a chunk are passed over and counted.
	p = &PcapPort{Name: "p", Read: writeCapture(t, false, [][]byte{make([]byte, 5000), make([]byte, 60)})}
	n, err = start(p)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if s := waitReceived(t, n, 1); s.Ports[0].Kernel.RxDropped != 1 {
		t.Errorf("%+v", s.Ports[0])
	}
}
