// Package pktgen lets packet generators that are not ours drive gradnic: it writes the commands for the one in the Linux
// kernel, and captures of real contributions for those that replay files (DPDK pktgen, TRex, tcpreplay, trafgen).
package pktgen

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"gradnic/wire/inet"
)

// Script describes runs of the kernel's pktgen against a NIC: one for each frame size.
type Script struct {
	Interface string    // that sends
	Queues    int       // 0 means 1; queue q is sent by the kernel thread of CPU FirstCPU+q
	FirstCPU  int       // the first CPU whose thread sends
	To        inet.MAC  // of the NIC
	ToIP      inet.Addr // of the NIC
	FromIP    inet.Addr // 0: 10.9.0.1; queue q adds q, so that the NIC tells the queues' numbers apart
	Port      uint16    // UDP destination; 0 means 9
	Sizes     []int     // of frames without FCS; nil means 60
	Count     uint64    // frames of each queue and size; 0 means 1,000,000
	Rate      float64   // frames a second over all queues; 0: as fast as it goes
}

var interfaceName = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,15}$`)

func (s *Script) check() error {
	if s.Queues == 0 {
		s.Queues = 1
	}
	if s.FromIP.IsZero() {
		s.FromIP = inet.Addr{10, 9, 0, 1}
	}
	if s.Port == 0 {
		s.Port = 9
	}
	if s.Sizes == nil {
		s.Sizes = []int{60}
	}
	if s.Count == 0 {
		s.Count = 1_000_000
	}
	switch {
	case !interfaceName.MatchString(s.Interface) || s.Interface == "." || s.Interface == "..":
		return fmt.Errorf("pktgen: interface %q is no interface's name", s.Interface)
	case s.Queues < 1 || s.Queues > 64 || s.FirstCPU < 0:
		return fmt.Errorf("pktgen: %d queues from CPU %d: legal are 1 to 64, from 0", s.Queues, s.FirstCPU)
	case s.To.IsZero() || s.ToIP.IsZero():
		return errors.New("pktgen: no destination MAC or IP address")
	case !(s.Rate >= 0) || s.Rate > 0 && s.Rate < float64(s.Queues):
		return fmt.Errorf("pktgen: %v frames a second over %d queues: at least one each", s.Rate, s.Queues)
	}
	for _, size := range s.Sizes {
		// 42 bytes of headers and the 16 of pktgen's own.
		if size < 60 || size > 9014 {
			return fmt.Errorf("pktgen: frames of %d bytes: legal are 60 to 9014", size)
		}
	}
	return nil
}

// Write writes a shell script for root: it loads the module, tells each thread its queue, and runs the sizes one after
// the other. What pktgen says of each run is printed.
func (s Script) Write(w io.Writer) error {
	if err := s.check(); err != nil {
		return err
	}
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("#!/bin/sh")
	line("# The kernel's packet generator on %s, for a NIC at %v, %v. Run as root; stop it with Ctrl-C.", s.Interface, s.ToIP, s.To)
	line("# Never on a veth pair whose other end runs XDP in generic mode: some kernels panic.")
	line("set -eu")
	line("modprobe pktgen 2>/dev/null || true")
	line("[ -e /proc/net/pktgen/pgctrl ] || { echo 'this kernel has no pktgen' >&2; exit 1; }")
	line(`pg() { echo "$2" >"/proc/net/pktgen/$1"; }`)
	line(`stopped=`)
	line(`trap 'stopped=yes; pg pgctrl stop' INT TERM`)
	// The kernel's start waits for threads that run after 125 ms; one that gets its CPU later it does not wait for, and
	// what is set meanwhile would be set for that run.
	for _, l := range []string{
		`# thread CPU: pktgen has a kernel thread on each CPU that was online when it was loaded.`,
		`thread() {`,
		`	[ -e "/proc/net/pktgen/kpktgend_$1" ] && return`,
		`	echo "pktgen has no thread kpktgend_$1: CPU $1 is not there, or came after pktgen was loaded (first CPU and queues of this script; nproc: $(nproc))" >&2`,
		`	exit 1`,
		`}`,
		`# run DEVICE...: returns when each has sent.`,
		`run() {`,
		`	pg pgctrl start`,
		`	for device; do`,
		`		left=100`,
		`		until grep -q 'Result: OK: .* usec' "/proc/net/pktgen/$device"; do`,
		`			if [ "$stopped" ] || ! grep -q 'Result: Starting' "/proc/net/pktgen/$device"; then`,
		`				left=$((left - 1))`,
		`			fi`,
		`			if [ "$left" -eq 0 ]; then`,
		`				echo "pktgen does not run on $device: $(sed -n 's/^ *Result: //p' "/proc/net/pktgen/$device")" >&2`,
		`				exit 1`,
		`			fi`,
		`			sleep 0.1`,
		`		done`,
		`		sed -n '/pkts-sofar/p;/pps/p;/Result/p' "/proc/net/pktgen/$device"`,
		`	done`,
		`	[ -z "$stopped" ] || exit 130`,
		`}`,
	} {
		line("%s", l)
	}
	for q := range s.Queues {
		line("thread %d", s.FirstCPU+q)
	}
	line("for thread in /proc/net/pktgen/kpktgend_*; do echo rem_device_all >\"$thread\"; done")
	device := func(q int) string {
		if s.Queues == 1 {
			return s.Interface
		}
		return fmt.Sprintf("%s@%d", s.Interface, q)
	}
	var all strings.Builder
	for q := range s.Queues {
		all.WriteString(" " + device(q))
		line("pg kpktgend_%d 'add_device %s'", s.FirstCPU+q, device(q))
		ip := inet.AddrFromUint32(s.FromIP.Uint32() + uint32(q))
		for _, c := range []string{
			fmt.Sprintf("count %d", s.Count), "clone_skb 0", "burst 1", "delay 0",
			fmt.Sprintf("dst_mac %v", s.To),
			fmt.Sprintf("dst_min %v", s.ToIP), fmt.Sprintf("dst_max %v", s.ToIP),
			fmt.Sprintf("src_min %v", ip), fmt.Sprintf("src_max %v", ip),
			"udp_src_min 9", "udp_src_max 9",
			fmt.Sprintf("udp_dst_min %d", s.Port), fmt.Sprintf("udp_dst_max %d", s.Port),
			fmt.Sprintf("queue_map_min %d", q), fmt.Sprintf("queue_map_max %d", q),
		} {
			line("pg %s '%s'", device(q), c)
		}
		// Since Linux 6.7 packets are shared with the driver unless told not to, which veth and others refuse; before, the
		// flag is not known.
		line("pg %s 'flag !SHARED' 2>/dev/null || true", device(q))
		if s.Rate > 0 {
			line("pg %s 'ratep %d'", device(q), int(s.Rate/float64(s.Queues)))
		}
	}
	for _, size := range s.Sizes {
		line("echo '== %d bytes (%d with FCS)'", size, size+4)
		for q := range s.Queues {
			line("pg %s 'pkt_size %d'", device(q), size)
		}
		line("run%s", all.String())
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("pktgen: %w", err)
	}
	return nil
}
