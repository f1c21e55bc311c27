package accl

import "gradnic/wire/inet"

// PayloadOffset is where the UDP payload starts in a frame.
const PayloadOffset = inet.PayloadOffset

// FrameLen is the longest frame, without the frame check sequence; MTU is what an interface must take for it.
const (
	FrameLen = PayloadOffset + MaxDatagram
	MTU      = FrameLen - inet.EthernetLen
)

// Endpoint is one end of a frame.
type Endpoint struct {
	MAC  inet.MAC
	IP   inet.Addr
	Port uint16
}

// PutFrame writes the headers of a frame that carries a UDP payload of that many bytes, bytes 0..41, and returns the
// frame's length. The payload belongs at frame[PayloadOffset:] and is not touched. The fields are those of the network
// stack that the card's UDP build has (github.com/Xilinx/xup_vitis_network_example): type of service and identification
// 0, fragments allowed but never made, TTL 64, no UDP checksum.
func PutFrame(frame []byte, from, to *Endpoint, payload int) int {
	inet.PutEthernet(frame, to.MAC, from.MAC, inet.EtherTypeIPv4)
	inet.PutIPv4(frame[inet.L3Offset:], inet.IPv4{
		TTL: 64, Proto: inet.ProtoUDP, Src: from.IP, Dst: to.IP, PayloadLen: inet.UDPLen + payload,
	})
	inet.PutUDP(frame[inet.L4Offset:], inet.UDP{Src: from.Port, Dst: to.Port, PayloadLen: payload})
	return PayloadOffset + payload
}
