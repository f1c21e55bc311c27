package dataplane

import "gradnic/wire/inet"

// answerARP answers a request for the NIC's address; every other ARP frame is dropped.
func (l *lane) answerARP(i int, frame []byte) {
	var a inet.ARP
	if f := inet.ParseARP(frame, &a); f != inet.OK {
		l.drop(i, reasonInet+Reason(f))
		return
	}
	if !a.Answerable(l.cfg.IP) {
		l.drop(i, NotForUs)
		return
	}
	if a.SenderIP == l.cfg.IP && a.SenderMAC != l.cfg.MAC {
		l.sayConflict(int(l.batch.port[i]), a.SenderMAC)
	}
	l.answer(i, inet.ReplyARP(frame, l.cfg.MAC, l.cfg.IP))
}

// answerOther answers an ICMP echo request; other protocols are dropped.
func (l *lane) answerOther(i int, frame []byte, p *inet.Packet) {
	if p.Proto != inet.ProtoICMP {
		l.drop(i, UnknownProtocol)
		return
	}
	var e inet.Echo
	if f := inet.ParseEcho(p, &e); f != inet.OK {
		l.drop(i, reasonInet+Reason(f))
		return
	}
	l.answer(i, inet.ReplyEcho(frame, p))
}

// answer sends frame i, which was made an answer in place, out of the port that it came in by.
func (l *lane) answer(i, length int) {
	d, tail := l.outgoing(i, length)
	port := int(l.batch.port[i])
	l.send(port, port, d, tail, sentAnswer)
}
