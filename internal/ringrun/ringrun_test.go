package ringrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/internal/netlab/netlabtest"
	"gradnic/internal/ringlab"
	"gradnic/service/ring"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParsePeers(t *testing.T) {
	p, err := ParsePeers("10.0.0.1, 10.0.0.7")
	if err != nil || len(p) != 2 || p[1].Node != 1 || p[1].IP != (inet.Addr{10, 0, 0, 7}) || p[1].MAC != (inet.MAC{2, 0x67, 10, 0, 0, 7}) {
		t.Fatalf("%v: %+v", err, p)
	}
	file := filepath.Join(t.TempDir(), "nodes")
	if err := os.WriteFile(file, []byte("# the ring\n10.0.0.3 06:00:00:00:00:03\n\n10.0.0.1 # no MAC\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if p, err = ParsePeers(file); err != nil || len(p) != 2 || p[0].MAC != (inet.MAC{6, 0, 0, 0, 0, 3}) || p[1].MAC[5] != 1 {
		t.Fatalf("%v: %+v", err, p)
	}
	for _, bad := range []string{"", "10.0.0.1", "10.0.0.1,x", "10.0.0.1,10.0.0.2 1:2", "/nowhere/nodes", "10.0.0.1,10.0.0.2,10.0.0.1"} {
		if p, err := ParsePeers(bad); err == nil {
			t.Errorf("%q gives %+v", bad, p)
		}
	}
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("10.0.0.%d", i+1))
	}
	if p, err := ParsePeers(strings.Join(many[:64], ",")); err != nil || len(p) != 64 {
		t.Errorf("64 nodes: %v", err)
	}
	if _, err := ParsePeers(strings.Join(many, ",")); err == nil {
		t.Error("65 nodes are taken")
	}
}

// TestWrong: one wrong element of many is found, in every codec's slack.
func TestWrong(t *testing.T) {
	for _, codec := range []string{"none", "bfp16-intel"} {
		data, part := make([]float32, 1000), make([]float32, 1000)
		for i := range 5 {
			Fill(part, i)
			for j := range data {
				data[j] += part[j]
			}
		}
		if n := Wrong(data, 5, codec); n != 0 {
			t.Errorf("%s: %d wrong", codec, n)
		}
		if n := Wrong(data, 4, codec); n < 300 {
			t.Errorf("%s: another number of nodes gives only %d wrong", codec, n)
		}
		data[17]++
		if n := Wrong(data, 5, codec); n != 1 {
			t.Errorf("%s: %d wrong, want 1", codec, n)
		}
	}
}

// links makes the namespaces, without NICs.
func links(t *testing.T, n int) (*ringlab.Lab, []ring.Peer) {
	t.Helper()
	netlabtest.NeedRoot(t)
	l, err := ringlab.New(ringlab.Options{Prefix: "gnringrun", Nodes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	var peers []ring.Peer
	for i := range n {
		peers = append(peers, ring.Peer{Node: uint16(i), Endpoint: ringlab.NICAddress(i)})
	}
	return l, peers
}

// TestNodes: three nodes, each run as `gradnic ring` does, sum and check.
func TestNodes(t *testing.T) {
	const n = 3
	l, peers := links(t, n)
	results := make([]*Result, n)
	err := l.Each(func(i int, node *ringlab.Node) error {
		time.Sleep(time.Duration(i) * 50 * time.Millisecond) // in any order
		return node.NS.Do(func() (err error) {
			o := NodeOptions{Interface: ringlab.Iface, Node: i, Peers: peers, Codec: "bfp16", Bytes: 400_000, Iterations: 2, DeadAfter: 5 * time.Second, Join: 20 * time.Second}
			if err := o.Check(); err != nil {
				return err
			}
			results[i], err = RunNode(t.Context(), o)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		var out strings.Builder
		if err := r.Write(&out); err != nil {
			t.Fatal(err)
		}
		// The warm-up, two rounds, and a barrier before each.
		if r.Row.Wrong != 0 || len(r.Times) != 2 || r.Counters.Completed != 6 || !strings.Contains(out.String(), "stalls: host in") {
			t.Errorf("node %d: %+v\n%s", i, r, out.String())
		}
	}
}

// TestNobodyCame: a node whose peers are not there says whom it misses.
func TestNobodyCame(t *testing.T) {
	l, peers := links(t, 2)
	err := l.Nodes[0].NS.Do(func() error {
		_, err := RunNode(t.Context(), NodeOptions{Interface: ringlab.Iface, Peers: peers, Codec: "none", Bytes: 4, Iterations: 1, Join: 100 * time.Millisecond})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "nothing heard of nodes [1]") {
		t.Fatal(err)
	}
}

// TestInterrupted: a demonstration and a node end soon after the context, in the middle of an all-reduce too, and say so.
func TestInterrupted(t *testing.T) {
	netlabtest.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { // a minute and a half for each all-reduce
		_, err := Demo(ctx, DemoOptions{Nodes: 2, Rate: 1e6, MTU: 1500, Codecs: []string{"none"}, Bytes: 8 << 20, Iterations: 3})
		ended <- err
	}()
	time.Sleep(1500 * time.Millisecond)
	cancel()
	select {
	case err := <-ended:
		if err == nil || err.Error() != "interrupted; everything that was made is removed" {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it goes on")
		<-ended
	}
	// A node of two, which otherwise go on for good: it ends, and the other says that it has left.
	l, peers := links(t, 2)
	alone, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(1500*time.Millisecond, cancel)
	err := l.Each(func(i int, node *ringlab.Node) error {
		return node.NS.Do(func() error {
			ctx, want := t.Context(), "node 0 has left"
			if i == 0 {
				ctx, want = alone, "interrupted"
			}
			o := NodeOptions{Interface: ringlab.Iface, Node: i, Peers: peers, DeadAfter: 5 * time.Second, Join: 10 * time.Second, Codec: "none", Bytes: 1 << 20, Iterations: 1 << 30}
			if _, err := RunNode(ctx, o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("node %d: %v", i, err)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDemo: the demonstration as a whole, with loss and a NIC that is killed.
func TestDemo(t *testing.T) {
	netlabtest.NeedRoot(t)
	o := DemoOptions{Nodes: 3, Rate: 500e6, MTU: 1500, Codecs: []string{"none", "bfp16", "bfp16-intel"}, Bytes: 1 << 20, Iterations: 1, Loss: 0.01, Kill: true}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := Demo(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Same != (row.Codec != "bfp16-intel") || row.OfBound <= 0 || row.OfBound > 1.02 {
			t.Errorf("%+v", row)
		}
	}
	if k := r.Killed; len(r.Rows) != 3 || k == nil || k.Errors != 2 || !k.ReformedSum || k.NoticedMs > 5000 {
		t.Errorf("%+v", r.Killed)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if err := r.Write(&strings.Builder{}); err != nil {
		t.Error(err)
	}
	for _, bad := range []DemoOptions{{Nodes: 1}, {Nodes: 2, Bytes: 3}, {Nodes: 2, Bytes: 4}, {Nodes: 2, Bytes: 4, Iterations: 1, Loss: 0.9}, {Nodes: 2, Bytes: 4, Iterations: 1, Kill: true}} {
		if bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestCheckCodec: what a ring does not have is refused before anything starts, also when it is a codec.
func TestCheckCodec(t *testing.T) {
	peers := []ring.Peer{{Node: 0}, {Node: 1}}
	for _, name := range append(ring.Codecs(), "x", "", "lossless") {
		legal := name != "x" && name != "" && name != "lossless"
		demo := DemoOptions{Nodes: 2, Bytes: 4, Iterations: 1, Codecs: []string{name}}
		node := NodeOptions{Interface: "eth0", Peers: peers, Bytes: 4, Iterations: 1, Codec: name}
		if err := demo.Check(); (err == nil) != legal {
			t.Errorf("demo, codec %q: %v", name, err)
		}
		if err := node.Check(); (err == nil) != legal {
			t.Errorf("node, codec %q: %v", name, err)
		}
		node.HostSocket = "s" // each request has its own then
		if err := node.Check(); err != nil {
			t.Errorf("node with a socket, codec %q: %v", name, err)
		}
	}
	if err := (&NodeOptions{Interface: "eth0", Peers: peers, Bytes: 4, Iterations: 1, Codec: "none", MTU: 100}).Check(); err == nil {
		t.Error("an MTU of 100 is taken")
	}
}

// TestDemoOfOneElement: the least that there is, of which the first gradients are zeros, and a NIC that is killed when nothing is open.
func TestDemoOfOneElement(t *testing.T) {
	netlabtest.NeedRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := Demo(ctx, DemoOptions{Nodes: 3, MTU: 1500, Codecs: []string{"none", "bfp16-intel"}, Bytes: 4, Iterations: 1, Kill: true})
	if err != nil {
		t.Fatal(err)
	}
	if k := r.Killed; len(r.Rows) != 2 || r.Rows[0].Error != 0 || !r.Rows[0].Same || k == nil || k.Errors != 2 || !k.ReformedSum {
		t.Errorf("%+v, %+v", r.Rows, r.Killed)
	}
}
