//go:build vm

package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

// The whole product on a card: `gradnic run` on it, and two workers with the host's own stack at the other end of the cable.
// Their arrays are summed by lanes, by the steering program, and under gradnic's own rules, every element checked.
func TestRunOnCards(t *testing.T) {
	eachNIC(t, func(t *testing.T, _ nicCase, gen, nut nic) {
		hosts := netlabtest.Namespace(t, netlabtest.New(t, "vm"), "hosts")
		gen.moveTo(t, hosts, "10.9.0.1/24", "10.9.0.2/24")
		api := filepath.Join(t.TempDir(), "api.sock")
		running := exec.Command("/gradnic", "run", "--port", nut.name, "--ip", "10.9.0.254", "--api", api)
		var log bytes.Buffer
		running.Stderr = &log
		stdout, err := running.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := running.Start(); err != nil {
			t.Fatal(err)
		}
		defer running.Process.Kill()
		out := bufio.NewReader(stdout)
		if line, err := out.ReadString('\n'); !strings.HasPrefix(line, "ready ") {
			t.Fatalf("the NIC says %q: %v: %s", line, err, log.Bytes())
		}
		call := func(args ...string) []byte {
			t.Helper()
			said, err := exec.Command("/gradnic", append(args, "--api", api)...).CombinedOutput()
			if err != nil {
				t.Fatalf("gradnic %s: %v: %s", strings.Join(args, " "), err, said)
			}
			return said
		}
		members := []string{"--member", fmt.Sprintf("0=%v,10.9.0.1,%s", gen.mac, nut.name), "--member", fmt.Sprintf("1=%v,10.9.0.2,%s", gen.mac, nut.name)}
		const elements, packet = 4096, 256
		for _, job := range []struct {
			protocol string
			install  []string
		}{
			{"native", []string{"--protocol", "native", "--number", "1"}},
			{"switchml", members},
			{"switchml", append([]string{"--in-kernel"}, members...)},
		} {
			call(append([]string{"install", "job", "sums", "--workers", "2"}, job.install...)...)
			train(t, hosts, job.protocol, elements)
			call("remove", "job", "sums")
		}
		var port struct {
			Port struct {
				Contributed uint64            `json:"contributed"`
				Steering    map[string]uint64 `json:"steering"`
			} `json:"port"`
		}
		if err := json.Unmarshal(call("show", "port", nut.name, "-j"), &port); err != nil {
			t.Fatal(err)
		}
		// Of each packet of the last job one worker's is added by the steering program, the other's completes the slot in it; both
		// workers' of the jobs before come to a lane.
		if p := port.Port; p.Contributed < 2*2*elements/packet || p.Steering["summed"] < elements/packet {
			t.Errorf("lanes added %d frames up, the steering program %d", p.Contributed, p.Steering["summed"])
		}
		var total struct {
			Counters struct {
				Fault string `json:"fault"`
			} `json:"counters"`
		}
		if err := json.Unmarshal(call("show", "counters", "-j"), &total); err != nil || total.Counters.Fault != "" {
			t.Errorf("%v: %s", err, total.Counters.Fault)
		}
		if err := running.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
		if err := running.Wait(); err != nil {
			t.Errorf("%v: %s", err, log.Bytes())
		}
	})
}

// train has two workers of a host sum arrays through the NIC, every element checked.
func train(t *testing.T, hosts *netlab.NS, protocol string, elements int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var workers [2]*exec.Cmd
	var said [2]bytes.Buffer
	for rank := range workers {
		w := exec.CommandContext(ctx, "/gradnic", "worker", "--protocol", protocol, "--nic", "10.9.0.254", "--rank", fmt.Sprint(rank), "--workers", "2",
			"--ip", fmt.Sprintf("10.9.0.%d", rank+1), "--random", fmt.Sprint(elements), "--type", "int32", "--iters", "1", "--warmup", "0", "--check", "--deadline", "45s")
		w.Stdout, w.Stderr = &said[rank], &said[rank]
		if err := hosts.Start(w); err != nil {
			t.Fatal(err)
		}
		workers[rank] = w
	}
	for rank, w := range workers {
		if err := w.Wait(); err != nil {
			t.Errorf("%s, rank %d: %v: %s", protocol, rank, err, said[rank].Bytes())
		}
	}
}

// moveTo gives a NIC and addresses to a network namespace, and takes it back in the end.
func (n nic) moveTo(t *testing.T, ns *netlab.NS, addresses ...string) {
	t.Helper()
	link, err := netlink.LinkByIndex(n.index)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(link, ns.FD()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		home, err := os.Open("/proc/1/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		defer home.Close()
		if err := ns.Netlink().LinkSetNsFd(link, int(home.Fd())); err != nil {
			t.Error(err)
		}
	})
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Netlink().AddrAdd(link, address); err != nil {
			t.Fatal(err)
		}
	}
	if err := ns.Netlink().LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}
