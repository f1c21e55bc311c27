// Package pcapng writes the frames of a capture as a pcapng file, which tcpdump, tshark and Wireshark read.
//
// Each port has an interface a stage, named eth1:rx, eth1:tx and eth1:drop, so that a reader can filter by it. Each
// frame has a comment, "stage=drop port=eth1 lane=0 reason=unknown-worker", and a direction. What the capture lost is
// in the interface statistics at the end, as the format has it.
package pcapng

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/show"
)

// stages in the order of the interfaces of a port.
var stages = [...]apiv1.CaptureStage{
	apiv1.CaptureStage_CAPTURE_STAGE_RX, apiv1.CaptureStage_CAPTURE_STAGE_TX, apiv1.CaptureStage_CAPTURE_STAGE_DROP,
}

// Writer writes one file.
type Writer struct {
	w       *pcapgo.NgWriter
	ports   []string
	frames  []uint64 // by interface
	started time.Time
}

// NewWriter writes the head of a file with frames of these ports. version is the program's, snapLen as the capture has
// it, 0 for whole frames.
func NewWriter(w io.Writer, ports []string, version string, snapLen uint32) (*Writer, error) {
	if len(ports) == 0 {
		return nil, fmt.Errorf("pcapng: no ports")
	}
	p := &Writer{ports: ports, frames: make([]uint64, len(ports)*len(stages)), started: time.Now()}
	for i := range p.frames {
		face := pcapgo.NgInterface{
			Name: ports[i/len(stages)] + ":" + show.StageName(stages[i%len(stages)]), OS: runtime.GOOS,
			LinkType: layers.LinkTypeEthernet, SnapLength: snapLen, TimestampResolution: 9,
		}
		var err error
		if i == 0 {
			p.w, err = pcapgo.NewNgWriterInterface(w, face, pcapgo.NgWriterOptions{
				SectionInfo: pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "gradnic " + version},
			})
		} else {
			_, err = p.w.AddInterface(face)
		}
		if err != nil {
			return nil, fmt.Errorf("pcapng: interface %s: %w", face.Name, err)
		}
	}
	return p, p.Flush()
}

// face is the number of the interface of a port and stage.
func (p *Writer) face(port uint32, stage apiv1.CaptureStage) (int, error) {
	if int(port) >= len(p.ports) {
		return 0, fmt.Errorf("pcapng: port %d of %d", port, len(p.ports))
	}
	for i, s := range stages {
		if s == stage {
			return int(port)*len(stages) + i, nil
		}
	}
	return 0, fmt.Errorf("pcapng: stage %v", stage)
}

// Frame writes one frame. It is in the file after Flush.
func (p *Writer) Frame(f *apiv1.CapturedFrame) error {
	face, err := p.face(f.GetPort(), f.GetStage())
	if err != nil {
		return err
	}
	comment := fmt.Sprintf("stage=%s port=%s lane=%d", show.StageName(f.GetStage()), p.ports[f.GetPort()], f.GetLane())
	if f.GetReason() != "" {
		comment += " reason=" + f.GetReason()
	}
	direction := pcapgo.NgEpbFlagDirectionInbound
	if f.GetStage() == apiv1.CaptureStage_CAPTURE_STAGE_TX {
		direction = pcapgo.NgEpbFlagDirectionOutbound
	}
	p.frames[face]++
	err = p.w.WritePacketWithOptions(
		gopacket.CaptureInfo{
			Timestamp: f.GetTime().AsTime(), CaptureLength: len(f.GetData()), Length: max(int(f.GetLength()), len(f.GetData())), InterfaceIndex: face,
		},
		f.GetData(),
		pcapgo.NgPacketOptions{Comments: []string{comment}, Flags: &pcapgo.NgEpbFlags{Direction: direction}})
	if err != nil {
		return fmt.Errorf("pcapng: write: %w", err)
	}
	return nil
}

// Flush hands what was written to the file.
func (p *Writer) Flush() error {
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("pcapng: write: %w", err)
	}
	return nil
}

// Finish writes the statistics of the interfaces: frames seen, and frames of these that the capture lost.
func (p *Writer) Finish(lost []*apiv1.CaptureLoss) error {
	gone := make([]uint64, len(p.frames))
	for _, l := range lost {
		face, err := p.face(l.GetPort(), l.GetStage())
		if err != nil {
			return err
		}
		gone[face] = l.GetFrames()
	}
	now := time.Now()
	for i := range p.frames {
		err := p.w.WriteInterfaceStats(i, pcapgo.NgInterfaceStatistics{
			LastUpdate: now, StartTime: p.started, EndTime: now, PacketsReceived: p.frames[i] + gone[i], PacketsDropped: gone[i],
		})
		if err != nil {
			return fmt.Errorf("pcapng: write: %w", err)
		}
	}
	return p.Flush()
}
