// switchml_aggregator sums what workers send by SwitchML over UDP. It stores a frame, judges it, combines its values with
// those of its slot, and sends the result when it was the last one; then it takes the next frame. It also answers ARP.
//
// Frames have fixed offsets (see frame_store for the order within a word):
//
//   word 0   destination MAC 6, source MAC 2
//   word 1   source MAC 4, EtherType 2, version and header length 1, type of service 1
//   word 2   total length 2, identification 2, fragment 2, TTL 1, protocol 1
//   word 3   header checksum 2, source IP 4, destination IP 2
//   word 4   destination IP 2, source port 2, destination port 2, UDP length 2
//   word 5   UDP checksum 2, type and size 1, job 1, tsi 4
//   word 6   pool index 2, exponents 2, value 0
//   word 7   values 1 and 2, and so on; the last word has one value
//
// Values therefore stay where they are in the words, and a slot's memory has words of the same shape; the half of word 6
// that is header is kept and ignored.
module switchml_aggregator #(
    parameter SLOT = 9,                 // 2^SLOT slots, two sets each
    parameter RANK = 5                  // 2^RANK workers at most
) (
    input  wire            clk,
    input  wire            rst,

    // What the control plane says. Stable while frames are coming.
    input  wire [47:0]     nic_mac,
    input  wire [31:0]     nic_ip,
    input  wire [RANK:0]   workers,     // 1..2^RANK
    input  wire            narrow,      // packets of 64 elements are taken
    input  wire            broad,       // packets of 256 elements are taken
    input  wire            worker_we,
    input  wire [RANK-1:0] worker_rank,
    input  wire [47:0]     worker_mac,
    input  wire [31:0]     worker_ip,

    input  wire [63:0]     s_tdata,
    input  wire [7:0]      s_tkeep,
    input  wire            s_tlast,
    input  wire            s_tvalid,
    output wire            s_tready,

    output wire [63:0]     m_tdata,
    output wire [7:0]      m_tkeep,
    output wire            m_tlast,
    output wire            m_tvalid,
    input  wire            m_tready,

    output wire            idle,        // nothing is stored, nothing is to be sent
    output reg             judged,      // one cycle for each frame, with
    output reg  [3:0]      verdict      // one of the names below
);
    localparam ADDED = 4'd0, COMPLETED = 4'd1, ANSWERED = 4'd2, DUPLICATE = 4'd3,
               NOT_FOR_US = 4'd4, NOT_IPV4 = 4'd5, BAD_LENGTH = 4'd6, FRAGMENT = 4'd7, NOT_UDP = 4'd8,
               UNKNOWN_PORT = 4'd9, BAD_TYPE = 4'd10, WRONG_SIZE = 4'd11, BAD_SLOT = 4'd12, UNKNOWN_WORKER = 4'd13, ARP = 4'd14;

    localparam BEAT = 8;                // words of values of one version: 129 at most

    wire           full, take;
    wire [15:0]    length;
    wire [447:0]   header;
    wire [BEAT-1:0] beat_next;
    wire [63:0]    stored, kept;

    // Values start at word 6.
    frame_store #(.HEADER(7), .ADDR(BEAT)) store (
        .clk(clk), .rst(rst), .s_tdata(s_tdata), .s_tkeep(s_tkeep), .s_tlast(s_tlast), .s_tvalid(s_tvalid),
        .s_tready(s_tready), .full(full), .length(length), .header(header), .take(take),
        .raddr(beat_next + 8'd6), .rdata(stored));

    // The fields, from left to right.
    wire [47:0] dst_mac, src_mac;
    wire [15:0] ethertype, total, identification, fragment, ip_checksum, src_port, dst_port, udp_length, udp_checksum, pool;
    wire [7:0]  version, tos, ttl, protocol, kind, job;
    wire [31:0] src_ip, dst_ip, tsi, value0;
    wire signed [7:0] e0, e1;
    assign {dst_mac, src_mac, ethertype, version, tos, total, identification, fragment, ttl, protocol, ip_checksum,
            src_ip, dst_ip, src_port, dst_port, udp_length, udp_checksum, kind, job, tsi, pool, e0, e1, value0} = header;

    wire        wide    = kind[2:0] == 3'd3;
    wire [15:0] payload = wide ? 16'd1034 : 16'd266; // header and values
    wire        set     = pool[15];

    // Trailing bytes beyond the IPv4 length are Ethernet padding. Checksums are not looked at: clients leave them to
    // their cards. TTL, type of service, identification and bit 3 of the first byte mean nothing.
    wire unused = &{1'b0, tos, identification, fragment[15:14], ttl, ip_checksum, udp_checksum, kind[3], pool[14], value0};
    reg [3:0] refused;

    // An ARP request for the NIC's address: Ethernet and IPv4, operation 1. Senders' addresses are at byte 22, what is
    // asked for at byte 38.
    wire        who_has    = ethertype == 16'h0806 && header[335:320] == 16'h0001 && header[319:272] == 48'h080006040001 &&
                             header[143:112] == nic_ip;
    wire [47:0] asker_mac  = header[271:224];
    wire [31:0] asker_ip   = header[223:192];

    always @* begin
        if (length < 16'd52)
            refused = BAD_LENGTH;
        else if (who_has)
            refused = ARP;
        else if (dst_mac != nic_mac)
            refused = NOT_FOR_US;
        else if (ethertype != 16'h0800 || version != 8'h45)
            refused = NOT_IPV4;
        else if (length < total + 16'd14 || total > 16'hfff1 || total < udp_length + 16'd20 || udp_length > 16'hffeb)
            refused = BAD_LENGTH;
        else if (fragment[13:0] != 14'd0)
            refused = FRAGMENT;
        else if (protocol != 8'd17)
            refused = NOT_UDP;
        else if (dst_ip != nic_ip)
            refused = NOT_FOR_US;
        else if (dst_port[15:4] != 12'hbee)
            refused = UNKNOWN_PORT;
        else if (kind[7:4] != 4'd1)
            refused = BAD_TYPE;
        else if (!(wide ? broad : kind[2:0] == 3'd1 && narrow) || udp_length != payload + 16'd8)
            refused = WRONG_SIZE;
        else if (pool[13:SLOT] != 0)
            refused = BAD_SLOT;
        else
            refused = ADDED;
    end

    localparam START = 3'd0, WAIT = 3'd1, SEARCH = 3'd2, JUDGE = 3'd3, COMBINE = 3'd4, SEND = 3'd5, ANSWER = 3'd6, DONE = 3'd7;
    reg  [2:0]      state;
    reg  [BEAT-1:0] beat;       // word of values
    reg             valid;      // stored and kept are those of beat
    reg  [2:0]      word;       // of the headers, 0..6
    reg  [RANK-1:0] to;
    reg             add, broadcast;
    reg  signed [7:0] max0, max1;
    wire            looked, found, ready;
    wire [RANK-1:0] rank;
    wire [47:0]     to_mac;
    wire [31:0]     to_ip;
    wire            now_overwrite, now_add, now_broadcast, now_unicast;
    wire signed [7:0] now_max0, now_max1;
    wire [BEAT-1:0] last_beat = wide ? 8'd128 : 8'd32;

    worker_table #(.RANK(RANK)) table_ (
        .clk(clk), .rst(rst), .we(worker_we), .wrank(worker_rank), .wmac(worker_mac), .wip(worker_ip),
        .workers(workers), .start(state == WAIT && full && refused == ADDED), .mac(src_mac), .ip(src_ip),
        .done(looked), .found(found), .rank(rank), .to(to), .to_mac(to_mac), .to_ip(to_ip));

    switchml_slots #(.SLOT(SLOT), .RANK(RANK)) slots (
        .clk(clk), .rst(rst), .ready(ready), .workers(workers), .judge(state == JUDGE),
        .slot(pool[SLOT-1:0]), .set(set), .rank(rank), .e0(e0), .e1(e1),
        .overwrite(now_overwrite), .add(now_add), .broadcast(now_broadcast), .unicast(now_unicast),
        .max0(now_max0), .max1(now_max1));

    wire sent = m_tvalid && m_tready;
    assign beat_next = state == COMBINE ? (valid ? beat + 8'd1 : beat) :
                       state == SEND && word == 3'd6 && sent ? beat + 8'd1 :
                       state == SEND ? beat : 8'd0;

    value_ram #(.ADDR(SLOT + 1 + BEAT)) values (
        .clk(clk), .raddr({pool[SLOT-1:0], set, beat_next}), .rdata(kept),
        .we(state == COMBINE && valid), .waddr({pool[SLOT-1:0], set, beat}),
        .wdata(add ? {kept[63:32] + stored[63:32], kept[31:0] + stored[31:0]} : stored));

    assign take = state == DONE;
    assign idle = ready && state == WAIT && s_tready;

    always @(posedge clk) begin
        judged <= 1'b0;
        if (rst)
            state <= START;
        else case (state)
            START:
                if (ready)
                    state <= WAIT;
            WAIT:
                if (full && refused == ADDED)
                    state <= SEARCH;
                else if (full) begin
                    judged  <= 1'b1;
                    verdict <= refused;
                    word    <= 3'd0;
                    state   <= refused == ARP ? ANSWER : DONE;
                end
            SEARCH:
                if (looked && found)
                    state <= JUDGE;
                else if (looked) begin
                    judged  <= 1'b1;
                    verdict <= UNKNOWN_WORKER;
                    state   <= DONE;
                end
            JUDGE: begin
                judged    <= 1'b1;
                verdict   <= now_broadcast ? COMPLETED : now_unicast ? ANSWERED : now_overwrite || now_add ? ADDED : DUPLICATE;
                add       <= now_add;
                broadcast <= now_broadcast;
                max0      <= now_max0;
                max1      <= now_max1;
                to        <= now_broadcast ? {RANK{1'b0}} : rank;
                beat      <= 8'd0;
                valid     <= 1'b0;
                word      <= 3'd0;
                state     <= now_overwrite || now_add ? COMBINE : now_unicast ? SEND : DONE;
            end
            COMBINE: begin
                valid <= 1'b1;
                beat  <= beat_next;
                if (valid && beat == last_beat) begin
                    beat  <= 8'd0;
                    state <= broadcast ? SEND : DONE;
                end
            end
            SEND:
                if (sent) begin
                    if (word != 3'd6)
                        word <= word + 3'd1;
                    else if (beat != last_beat)
                        beat <= beat_next;
                    else begin
                        beat <= 8'd0;
                        word <= 3'd0;
                        to   <= to + 1'b1;
                        if (!broadcast || {1'b0, to} + 1'b1 == workers)
                            state <= DONE;
                    end
                end
            ANSWER: // ARP
                if (sent) begin
                    word <= word + 3'd1;
                    if (word == 3'd7)
                        state <= DONE;
                end
            default: // DONE, one cycle, in which the frame is released
                state <= WAIT;
        endcase
    end

    // The reply: every byte as the P4 program writes it. Clients make their next request from it and keep many fields.
    wire [15:0] out_total = payload + 16'd28;
    wire [15:0] out_checksum;
    ipv4_checksum reply_checksum (
        .total(out_total), .dont_fragment(1'b0), .ttl(8'd64), .protocol(8'd17), .src(nic_ip), .dst(to_ip),
        .checksum(out_checksum));

    reg [63:0] out;
    always @* case (word)
        3'd0:    out = {to_mac, nic_mac[47:32]};
        3'd1:    out = {nic_mac[31:0], 16'h0800, 8'h45, 8'd0};
        3'd2:    out = {out_total, 16'd0, 16'd0, 8'd64, 8'd17};
        3'd3:    out = {out_checksum, nic_ip, to_ip[31:16]};
        3'd4:    out = {to_ip[15:0], dst_port, src_port, payload + 16'd8};
        3'd5:    out = {16'd0, 4'd1, 1'b0, wide ? 3'd3 : 3'd1, job, tsi};
        default: out = beat == 8'd0 ? {set, 1'b0, pool[13:0], max0, max1, kept[31:0]} : kept;
    endcase

    reg [63:0] answer; // 42 bytes, padded to 60
    always @* case (word)
        3'd0:    answer = {asker_mac, nic_mac[47:32]};
        3'd1:    answer = {nic_mac[31:0], 32'h08060001};
        3'd2:    answer = {48'h080006040002, nic_mac[47:32]};
        3'd3:    answer = {nic_mac[31:0], nic_ip};
        3'd4:    answer = {asker_mac, asker_ip[31:16]};
        3'd5:    answer = {asker_ip[15:0], 48'd0};
        default: answer = 64'd0;
    endcase

    wire [63:0] next = state == ANSWER ? answer : out;
    assign m_tvalid = state == SEND || state == ANSWER;
    assign m_tdata  = {next[7:0], next[15:8], next[23:16], next[31:24], next[39:32], next[47:40], next[55:48], next[63:56]};
    assign m_tlast  = state == ANSWER ? word == 3'd7 : word == 3'd6 && beat == last_beat;
    assign m_tkeep  = m_tlast ? 8'h0f : 8'hff;
endmodule
