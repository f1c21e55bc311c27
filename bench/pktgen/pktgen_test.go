package pktgen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"gradnic/dataplane"
	"gradnic/internal/gradients"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

var (
	mac = inet.MAC{6, 0, 0, 0, 0, 0xfe}
	ip  = inet.Addr{10, 50, 0, 254}
)

func TestScript(t *testing.T) {
	var b strings.Builder
	s := Script{Interface: "eth1", Queues: 3, FirstCPU: 2, To: mac, ToIP: ip, Sizes: []int{60, 1514}, Count: 5, Rate: 3000}
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"pg kpktgend_2 'add_device eth1@0'\n", "pg kpktgend_4 'add_device eth1@2'\n", "pg eth1@1 'dst_mac 06:00:00:00:00:fe'\n",
		"pg eth1@1 'src_min 10.9.0.2'\n", "pg eth1@2 'queue_map_min 2'\n", "pg eth1@0 'ratep 1000'\n", "pg eth1@2 'pkt_size 1514'\n",
		"pg eth1@0 'udp_dst_min 9'\n", "pg eth1@0 'count 5'\n", "thread 2\n", "thread 3\n", "thread 4\n",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(text, want), want, text)
		}
	}
	if n := strings.Count(text, "\nrun eth1@0 eth1@1 eth1@2\n"); n != 2 {
		t.Errorf("%d runs, want one for each size", n)
	}
	sh := exec.Command("sh", "-n")
	sh.Stdin = strings.NewReader(text)
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v: %s", err, out)
	}
	for _, bad := range []func(*Script){
		func(s *Script) { s.Interface = "eth1; reboot" }, func(s *Script) { s.Interface = "" }, func(s *Script) { s.Interface = ".." }, func(s *Script) { s.Queues = 65 },
		func(s *Script) { s.To = inet.MAC{} }, func(s *Script) { s.Sizes = []int{59} }, func(s *Script) { s.Rate = 2 },
	} {
		s := Script{Interface: "eth1", Queues: 3, To: mac, ToIP: ip}
		bad(&s)
		if err := s.Write(&b); err == nil {
			t.Errorf("%+v was not refused", s)
		}
	}
}

// A CPU that has no thread of pktgen is said before anything is told to a thread.
func TestScriptNeedsThreads(t *testing.T) {
	var b strings.Builder
	s := Script{Interface: "eth1", Queues: 3, FirstCPU: 2, To: mac, ToIP: ip}
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	// The kernel's files are made in a folder: pktgen has threads on CPUs 0 to 3.
	proc := t.TempDir()
	for _, file := range []string{"pgctrl", "kpktgend_0", "kpktgend_1", "kpktgend_2", "kpktgend_3"} {
		if err := os.WriteFile(filepath.Join(proc, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(b.String(), "/proc/net/pktgen", proc)
	text = strings.ReplaceAll(text, "modprobe ", ": ") // of this machine
	sh := exec.Command("sh")
	sh.Stdin = strings.NewReader(text)
	out, err := sh.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(string(out), "pktgen has no thread kpktgend_4: CPU 4 ") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
	told, err := os.ReadFile(filepath.Join(proc, "kpktgend_2"))
	if err != nil || len(told) != 0 {
		t.Errorf("the thread of CPU 2 was told %q, %v", told, err)
	}
}

// frames reads a capture back.
func frames(t *testing.T, c Capture) (out [][]byte) {
	t.Helper()
	var b bytes.Buffer
	n, err := c.Write(&b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, ci, err := r.ReadPacketData()
		if err != nil {
			break
		}
		if want := time.Unix(0, int64(len(out))*int64(c.Gap)); !ci.Timestamp.Equal(want) {
			t.Fatalf("frame %d at %v, want %v", len(out), ci.Timestamp, want)
		}
		out = append(out, f)
	}
	if len(out) != n || n != c.Workers*c.Packets {
		t.Fatalf("%d frames in the file, %d written, want %d", len(out), n, c.Workers*c.Packets)
	}
	return out
}

// A NIC that is given the capture completes every slot, and its results are the sums of the real gradients.
func TestCaptureThroughTheNIC(t *testing.T) {
	const workers, packets, elements = 3, 40, 64
	port := dataplane.NewMemPort("p")
	n, err := dataplane.New(dataplane.Config{MAC: mac, IP: ip}, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer n.Stop(t.Context())
	job := dataplane.JobSpec{Name: "j", Workers: workers, Elements: elements, Slots: 16}
	for r := range workers {
		m, a, _ := worker(r)
		job.Members = append(job.Members, dataplane.WorkerSpec{Rank: r, MAC: m, IP: a, Port: 0})
	}
	if err := n.InstallJob(job); err != nil {
		t.Fatal(err)
	}
	var values [workers][]float32
	for r := range workers {
		if values[r], err = gradients.Load(r); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 2048)
	for i, f := range frames(t, Capture{Protocol: "switchml", Workers: workers, Elements: elements, Slots: 16, Packets: packets, To: mac, ToIP: ip, Gap: time.Microsecond}) {
		if err := port.Send(f); err != nil {
			t.Fatal(err)
		}
		if i%workers != workers-1 {
			continue
		}
		for range workers {
			k, err := port.Recv(buf, time.Now().Add(10*time.Second))
			if err != nil {
				t.Fatalf("result of packet %d: %v", i/workers, err)
			}
			var p inet.Packet
			if f := inet.Parse(buf[:k], &p); f != inet.OK {
				t.Fatal(f)
			}
			v, fault := switchml.Validate(p.Payload)
			if fault != switchml.OK {
				t.Fatal(fault)
			}
			e0 := int8(p.Payload[8])
			for x := range elements {
				want := 0.0
				for r := range workers {
					want += float64(values[r][i/workers*elements+x])
				}
				got := math.Ldexp(float64(int32(binary.BigEndian.Uint32(buf[switchml.ValuesOffset+4*x:]))), int(e0)-30)
				if math.Abs(got-want) > 1e-8 {
					t.Fatalf("packet %d element %d: %v, want %v (%d elements)", i/workers, x, got, want, v.Elements())
				}
			}
		}
	}
	if s := n.Snapshot(); s.Total.Results != packets || s.Total.Contributed != workers*packets {
		t.Errorf("%d results of %d contributions, want %d of %d", s.Total.Results, s.Total.Contributed, packets, workers*packets)
	}
}

func TestNativeCapture(t *testing.T) {
	g, err := gradients.Load(1)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames(t, Capture{Protocol: "native", Workers: 2, Elements: 352, Slots: 8, Packets: 542, To: mac, ToIP: ip, Epoch: 7}) {
		var p inet.Packet
		if f := inet.Parse(f, &p); f != inet.OK {
			t.Fatal(f)
		}
		v, fault := native.Validate(p.Payload)
		if fault != native.OK || int(v.Rank()) != i%2 || int(v.Slot()) != i/2%8 || v.Epoch() != 7 || int(v.Round()) != i/16+1 {
			t.Fatalf("frame %d: %v %x", i, fault, p.Payload[:32])
		}
		if i%2 == 1 && i/2*352 < len(g) {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(f[native.ValuesOffset:])); got != g[i/2*352] {
				t.Fatalf("frame %d begins with %v, want %v", i, got, g[i/2*352])
			}
		}
	}
}

func TestCaptureRefuses(t *testing.T) {
	for _, c := range []Capture{
		{Protocol: "roce", To: mac, ToIP: ip}, {Protocol: "switchml", Elements: 128, To: mac, ToIP: ip}, {Protocol: "native", Workers: 9, To: mac, ToIP: ip},
		{Protocol: "native"}, {Protocol: "native", Elements: 3000, To: mac, ToIP: ip}, {Protocol: "native", Packets: 1 << 20, To: mac, ToIP: ip}, {Protocol: "native", Slots: 9000, To: mac, ToIP: ip},
	} {
		if _, err := c.Write(&bytes.Buffer{}); err == nil {
			t.Errorf("%+v was not refused", c)
		}
	}
}
