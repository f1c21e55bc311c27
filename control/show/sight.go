package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// Stage is one stage of a lane's work.
type Stage struct {
	dataplane.StageSnapshot
	NSPerFrame float64 `json:"ns_per_frame"` // 0: none was timed
}

// LaneStages are the stages of one lane.
type LaneStages struct {
	Lane   int     `json:"lane"`
	Stages []Stage `json:"stages"`
}

// Stages are the stages of the NIC's lanes, in the order of the work.
type Stages struct {
	Total []Stage      `json:"stages"`
	Lanes []LaneStages `json:"lanes"`
}

// StagesFrom makes the document from the API's message.
func StagesFrom(m *apiv1.ListStagesResponse) Stages {
	s := Stages{Total: stagesFrom(m.GetTotal()), Lanes: []LaneStages{}}
	for _, l := range m.GetLanes() {
		s.Lanes = append(s.Lanes, LaneStages{int(l.GetLane()), stagesFrom(l.GetStages())})
	}
	return s
}

func stagesFrom(in []*apiv1.Stage) []Stage {
	out := make([]Stage, 0, len(in))
	for _, m := range in {
		s := Stage{StageSnapshot: dataplane.StageSnapshot{
			Stage: m.GetName(), Frames: m.GetFrames(), Batches: m.GetBatches(), TimedFrames: m.GetTimedFrames(), TimedNS: m.GetTimedNs(),
		}}
		s.NSPerFrame = s.StageSnapshot.NSPerFrame()
		out = append(out, s)
	}
	return out
}

// TableStages writes one line a stage: the sums, and where there are several lanes, each lane's. SHARE is the part of
// all time that was measured.
func TableStages(w io.Writer, s Stages) error {
	t := newTable(w, "LANE", "STAGE", "FRAMES", "BATCHES", "FRAMES/BATCH", "NS/FRAME", "SHARE", "TIMED")
	rows := func(lane string, stages []Stage) {
		all := uint64(0)
		for i := range stages {
			all += stages[i].TimedNS
		}
		for i := range stages {
			p := &stages[i]
			ns, share := "-", "-"
			if p.TimedFrames > 0 {
				ns = strconv.FormatFloat(p.NSPerFrame, 'f', 1, 64)
			}
			if all > 0 {
				share = percent(float64(p.TimedNS) / float64(all))
			}
			t.row(lane, p.StageSnapshot.Stage, p.Frames, p.Batches, ratio(p.Frames, p.Batches), ns, share, p.TimedFrames)
		}
	}
	rows("all", s.Total)
	if len(s.Lanes) > 1 {
		for i := range s.Lanes {
			rows(strconv.Itoa(s.Lanes[i].Lane), s.Lanes[i].Stages)
		}
	}
	return t.w.Flush()
}

// TracedFrom makes the document from the API's message.
func TracedFrom(m *apiv1.TracedFrame) dataplane.TraceFrame {
	msg := m.GetMessage()
	f := dataplane.TraceFrame{
		Time: m.GetTime().AsTime(), Lane: int(m.GetLane()), From: int(m.GetFromLane()), Port: m.GetPort(), Length: int(m.GetLength()),
		Message: dataplane.TraceMessage{
			Protocol: msg.GetProtocol(), UDPPort: uint16(msg.GetUdpPort()), To: uint16(msg.GetToUdpPort()), Kind: msg.GetKind(),
			JobID: uint16(msg.GetJobId()), Slot: int(msg.GetSlot()), Set: int(msg.GetSet()), Round: msg.GetRound(), TSI: msg.GetTsi(),
			Elements: int(msg.GetElements()),
		},
		Job: m.GetJob(), Rank: int(m.GetRank()), Outcome: m.GetOutcome(), Seen: ranks(m.GetSeen()), Waiting: ranks(m.GetWaiting()),
		Replies: []dataplane.TraceReply{}, Lost: map[string]int{}, Verdict: m.GetVerdict(), Reason: m.GetReason(),
	}
	f.Message.MAC, f.Message.IP = addresses(msg.GetMac(), msg.GetIpv4())
	for _, r := range m.GetReplies() {
		p := dataplane.TraceReply{
			Rank: int(r.GetRank()), UDPPort: uint16(r.GetUdpPort()), Port: r.GetPort(), Length: int(r.GetLength()),
			Posted: r.GetPosted(), Reason: r.GetReason(),
		}
		p.MAC, p.IP = addresses(r.GetMac(), r.GetIpv4())
		f.Replies = append(f.Replies, p)
	}
	for _, d := range m.GetLost() {
		f.Lost[d.GetReason()] = int(d.GetCount())
	}
	return f
}

// addresses are what the NIC wrote; what cannot be read is zero.
func addresses(mac, ip string) (m inet.MAC, a inet.Addr) {
	m, _ = inet.ParseMAC(mac)
	a, _ = inet.ParseAddr(ip)
	return m, a
}

// TextTraced writes one traced frame, a line a stage. n is its number in the trace.
func TextTraced(w io.Writer, n int, f dataplane.TraceFrame) error {
	var b strings.Builder
	line := func(stage, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s  %s\n", stage, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "frame %d  %s  lane %d\n", n, f.Time.Format(clock), f.Lane)
	from := ""
	if f.From >= 0 {
		from = fmt.Sprintf(", handed over by lane %d", f.From)
	}
	line("rx", "%s, %d bytes%s", f.Port, f.Length, from)
	m := &f.Message
	version := fmt.Sprintf("set %d", m.Set)
	if m.Protocol == dataplane.ProtocolNative {
		version = fmt.Sprintf("round %d", m.Round)
	}
	tsi := ""
	if m.TSI != "" {
		tsi = ", tsi " + m.TSI
	}
	line("parse", "%s %s from %s %s:%d to port %d: slot %d, %s, %d elements, job id %d%s",
		m.Protocol, m.Kind, m.MAC, m.IP, m.UDPPort, m.To, m.Slot, version, m.Elements, m.JobID, tsi)
	switch {
	case f.Job != "":
		line("match", "job %s, rank %d", f.Job, f.Rank)
	default:
		line("match", "no job")
	}
	if f.Outcome != "" {
		state := ""
		if len(f.Seen) > 0 {
			state = fmt.Sprintf(": has rank %s, waits for %s", Ranks(f.Seen), Ranks(f.Waiting))
		}
		line("contribute", "%s%s", f.Outcome, state)
	}
	for i := range f.Replies {
		r := &f.Replies[i]
		rank := "all"
		if r.Rank >= 0 {
			rank = fmt.Sprintf("rank %d", r.Rank)
		}
		line("reply", "to %s at %s %s:%d, %d bytes", rank, r.MAC, r.IP, r.UDPPort, r.Length)
		if r.Posted {
			line("tx", "%s, posted", r.Port)
		} else {
			line("tx", "%s, dropped: %s", r.Port, r.Reason)
		}
	}
	for _, reason := range sortedKeys(f.Lost) {
		line("reply", "%d not made: %s", f.Lost[reason], reason)
	}
	if f.Reason != "" {
		line("verdict", "%s: %s", f.Verdict, f.Reason)
	} else {
		line("verdict", "%s", f.Verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// clock is how times of frames are written.
const clock = "15:04:05.000000"

// TextCaptured writes one captured frame as a line.
func TextCaptured(w io.Writer, ports []string, f *apiv1.CapturedFrame) error {
	port := strconv.Itoa(int(f.GetPort()))
	if int(f.GetPort()) < len(ports) {
		port = ports[f.GetPort()]
	}
	what := flow(f.GetData())
	if f.GetReason() != "" {
		what = f.GetReason() + "  " + what
	}
	_, err := fmt.Fprintf(w, "%s  %-4s  %s  lane %d  %d bytes  %s\n", f.GetTime().AsTime().Local().Format(clock), StageName(f.GetStage()), port, f.GetLane(), f.GetLength(), what)
	return err
}

// flow says from where to where a frame goes, as far as its bytes tell.
func flow(frame []byte) string {
	var p inet.Packet
	switch f := inet.Parse(frame, &p); {
	case f == inet.Short && len(frame) < inet.EthernetLen:
		return "not a whole Ethernet header"
	case p.SrcIP == inet.Addr{} && p.DstIP == inet.Addr{}:
		return fmt.Sprintf("%s > %s ethertype 0x%04x", inet.MAC(frame[6:12]), inet.MAC(frame[:6]), p.EtherType)
	case p.Proto == inet.ProtoUDP && f == inet.OK:
		return fmt.Sprintf("%s:%d > %s:%d udp", p.SrcIP, p.SrcPort, p.DstIP, p.DstPort)
	}
	return fmt.Sprintf("%s > %s protocol %d", p.SrcIP, p.DstIP, p.Proto)
}

// StageName is a capture stage as users write it.
func StageName(s apiv1.CaptureStage) string {
	if s == apiv1.CaptureStage_CAPTURE_STAGE_UNSPECIFIED {
		return "?"
	}
	return dataplane.CaptureStage(s - apiv1.CaptureStage_CAPTURE_STAGE_RX).String()
}

func queuesFrom(list []*apiv1.Queue) []dataplane.QueueSnapshot {
	queues := make([]dataplane.QueueSnapshot, 0, len(list))
	for _, q := range list {
		queues = append(queues, dataplane.QueueSnapshot{
			Queue: int(q.GetIndex()), Lane: int(q.GetLane()), Received: q.GetReceived(), Batches: q.GetBatches(), Transmitted: q.GetTransmitted(),
			Completed: q.GetCompleted(), Rings: ringsFrom(q.GetRings()),
		})
	}
	return queues
}

func ringsFrom(m *apiv1.Rings) dataplane.Rings {
	return dataplane.Rings{Fill: m.GetFill(), FillMost: m.GetFillMost(), Transmit: m.GetTransmit(), TransmitMost: m.GetTransmitMost()}
}

func laneTimeFrom(m *apiv1.LaneTime) dataplane.LaneTime {
	return dataplane.LaneTime{
		Life: time.Duration(m.GetLifeNs()), Busy: time.Duration(m.GetBusyNs()),
		Spin: time.Duration(m.GetSpinNs()), Sleep: time.Duration(m.GetSleepNs()),
	}
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + "%" }

func ratio(a, b uint64) string {
	if b == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(a)/float64(b), 'f', 1, 64)
}

func of(n, most uint64) string { return fmt.Sprintf("%d/%d", n, most) }

func sortedKeys(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }

// CaptureLost says what a capture lost, for the end of a sentence.
func CaptureLost(ports []string, lost []*apiv1.CaptureLoss) string {
	if len(lost) == 0 {
		return ", none lost"
	}
	all, parts := uint64(0), []string{}
	for _, l := range lost {
		all += l.GetFrames()
		port := strconv.Itoa(int(l.GetPort()))
		if int(l.GetPort()) < len(ports) {
			port = ports[l.GetPort()]
		}
		parts = append(parts, fmt.Sprintf("%s:%s %d", port, StageName(l.GetStage()), l.GetFrames()))
	}
	return fmt.Sprintf(", %d lost by the capture (%s): read faster, keep less of each frame (--snaplen), or give it more --buffer", all, strings.Join(parts, ", "))
}
