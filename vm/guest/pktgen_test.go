//go:build vm

package guest

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// pktgenMagic begins the payload of each of pktgen's packets; a sequence number follows.
const pktgenMagic = 0xbe9be955

// stream describes what the kernel's packet generator sends.
type stream struct {
	from   string // interface
	to     net.HardwareAddr
	frames int
	size   int // bytes of a frame without FCS
	rate   int // frames a second
	flags  []string
}

func pktgen(file string, commands ...string) error {
	for _, c := range commands {
		// One command a write, whose last byte the kernel drops.
		f, err := os.OpenFile("/proc/net/pktgen/"+file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(c + "\n")
		f.Close()
		if err != nil {
			return fmt.Errorf("pktgen %s: %q: %w", file, c, err)
		}
	}
	return nil
}

// setUp tells pktgen, whose thread of CPU 1 sends.
func (s stream) setUp() error {
	for cpu := range 2 {
		if err := pktgen(fmt.Sprintf("kpktgend_%d", cpu), "rem_device_all"); err != nil {
			return err
		}
	}
	if err := pktgen("kpktgend_1", "add_device "+s.from); err != nil {
		return err
	}
	commands := []string{
		fmt.Sprintf("count %d", s.frames), fmt.Sprintf("pkt_size %d", s.size), fmt.Sprintf("ratep %d", s.rate), "clone_skb 0", "burst 1",
		"dst_mac " + s.to.String(), fmt.Sprintf("dst_min %s", net.IP(nutIP[:])), fmt.Sprintf("dst_max %s", net.IP(nutIP[:])),
		"src_min 10.9.0.1", "src_max 10.9.0.1", fmt.Sprintf("udp_dst_min %d", port), fmt.Sprintf("udp_dst_max %d", port),
	}
	for _, f := range s.flags {
		commands = append(commands, "flag "+f)
	}
	return pktgen(s.from, commands...)
}

var ran = regexp.MustCompile(`Result: OK: .* usec`)

// run sends all frames; it returns when they are sent. The kernel's start alone may return before the thread has begun.
func (s stream) run() error {
	if err := pktgen("pgctrl", "start"); err != nil {
		return err
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile("/proc/net/pktgen/" + s.from)
		if err != nil || ran.Match(text) {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("pktgen on %s has not sent: %s", s.from, text)
		}
	}
}

var soFar = regexp.MustCompile(`pkts-sofar: (\d+)\s+errors: (\d+)`)

// sent is what pktgen says it sent.
func (s stream) sent(t *testing.T) (frames, failed int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/pktgen/" + s.from)
	if err != nil {
		t.Fatal(err)
	}
	m := soFar.FindSubmatch(text)
	if m == nil {
		t.Fatalf("no count in %s", text)
	}
	frames, _ = strconv.Atoi(string(m[1]))
	failed, _ = strconv.Atoi(string(m[2]))
	return frames, failed
}
