// Package layers gives gopacket (github.com/gopacket/gopacket) a layer for every protocol that gradnic speaks: SwitchML,
// the native protocol, ACCL, the ring and the bump in the wire. They are for tools that look at captures and make
// packets; the data plane does not use them.
//
// The layers are thin: what a field means and what is refused is said by the packages wire/switchml, wire/native,
// wire/accl, wire/ring and wire/bump. A message that these refuse is a decoding error that begins with the name of the
// drop reason. Each layer is a gopacket.DecodingLayer and a gopacket.SerializableLayer; what follows its header is its
// payload, which the next layer, gopacket.Payload, has again. A layer that was decoded and is serialized gives the same
// bytes.
//
// [Register] binds the layers to their UDP ports and EtherType, so that gopacket.NewPacket finds them. Without it,
// name the layer to a parser:
//
//	var sml layers.SwitchML
//	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeSwitchML, &sml)
//	err := parser.DecodeLayers(udpPayload, &found)
//
// ACCL's datagrams after the first of a message have no header. [ACCL] reads what has one; [ACCLSessions] follows the
// messages of all peers through a capture and reads the others too.
package layers
