// native_aggregator sums int32 by the native protocol (docs/protocol.md): workers report, are told to go, contribute, and
// get results. It is one job, without codecs. It has no clock and does not take back what it lost: there are no collecting
// notices, deadlines, asks and supplies, and workers that all had results before a reset are told that their job is
// aborted.
//
// The header begins at byte 42 and the values at byte 74 of the frame, which is 2 mod 8: every field of more than two
// bytes lies in two words, and values are moved by two bytes on their way in and out.
module native_aggregator #(
    parameter SLOT = 9,                 // 2^SLOT slots at most
    parameter RANK = 5                  // 2^RANK workers at most
) (
    input  wire            clk,
    input  wire            rst,

    // What the control plane says. Stable while frames are coming.
    input  wire [47:0]     nic_mac,
    input  wire [31:0]     nic_ip,
    input  wire [15:0]     job,
    input  wire [RANK:0]   workers,     // 1..2^RANK
    input  wire [SLOT:0]   slots,       // of the job, 1..2^SLOT
    input  wire [8:0]      elements,    // of a packet, 1..360
    input  wire [31:0]     deadline,    // only told to workers
    input  wire [31:0]     seed,        // the first epoch, not 0
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
    localparam ADDED = 4'd0, COMPLETED = 4'd1, ANSWERED = 4'd2, DUPLICATE = 4'd3, STALE = 4'd4, EARLY = 4'd5, TOLD = 4'd6,
               NOT_FOR_US = 4'd7, BAD_FRAME = 4'd8, BAD_MESSAGE = 4'd9, WRONG_SIZE = 4'd10, UNKNOWN_WORKER = 4'd11, UNWANTED = 4'd12;
    localparam WORKERS = 1 << RANK;
    localparam BEAT = 8;
    localparam CONTRIBUTION = 4'd1, REPORT = 4'd2, SUPPLY = 4'd3, LEAVE = 4'd4, RESULT = 4'd8, NOTICE = 4'd9;

    wire            full, take;
    wire [15:0]     length;
    wire [11*64-1:0] header;
    wire [BEAT-1:0] read_next;
    wire [63:0]     stored, kept;

    frame_store #(.HEADER(11), .ADDR(BEAT)) store (
        .clk(clk), .rst(rst), .s_tdata(s_tdata), .s_tkeep(s_tkeep), .s_tlast(s_tlast), .s_tvalid(s_tvalid),
        .s_tready(s_tready), .full(full), .length(length), .header(header), .take(take),
        .raddr(read_next + 8'd9), .rdata(stored));

    // The fields, from left to right; life and nonce are a report's.
    wire [47:0] dst_mac, src_mac, rest;
    wire [15:0] ethertype, total, identification, fragment, ip_checksum, src_port, dst_port, udp_length, udp_checksum;
    wire [15:0] in_job, in_rank, in_elements, in_length;
    wire [7:0]  ip_version, tos, ttl, protocol, flags, type_, codec, plane;
    wire [3:0]  version, kind;
    wire [31:0] src_ip, dst_ip, in_epoch, round, in_slot, collective, life, nonce;
    wire [23:0] zero;
    assign {dst_mac, src_mac, ethertype, ip_version, tos, total, identification, fragment, ttl, protocol, ip_checksum,
            src_ip, dst_ip, src_port, dst_port, udp_length, udp_checksum,
            version, kind, flags, type_, codec, in_job, in_rank, in_epoch, round, in_slot, collective, in_elements, in_length,
            plane, zero, life, nonce, rest} = header;
    wire unused = &{1'b0, tos, identification, fragment[15:14], ttl, ip_checksum, udp_checksum, rest, flags[5:0]};

    // The job.
    reg  [31:0]        epoch;
    reg  [1:0]         state;         // of the job
    localparam FORMING = 2'd0, READY = 2'd1, ABORTED = 2'd2, OUT_OF_STEP = 2'd3;
    reg  [WORKERS-1:0] reported;
    reg  [WORKERS-1:0] fresh;         // who has reported with life 0
    reg  [WORKERS-1:0] had;           // who has reported that it has results
    reg  [WORKERS-1:0] blamed;        // aborted: who left; out of step: who started anew
    reg  [31:0]        nonces [0:WORKERS-1];
    reg  [15:0]        ports  [0:WORKERS-1];
    reg  [79:0]        rows   [0:WORKERS-1];
    wire [RANK-1:0]    rank = in_rank[RANK-1:0];
    wire [WORKERS-1:0] bit_of = {{WORKERS-1{1'b0}}, 1'b1} << rank;
    wire [WORKERS-1:0] everybody = {WORKERS{1'b1}} >> (WORKERS - {{32-RANK-1{1'b0}}, workers});
    wire [15:0]        bytes = {5'd0, elements, 2'b00};
    wire               known = reported[rank] && nonces[rank] == nonce;
    wire               station = rows[rank] == {src_mac, src_ip};

    wire framed = length >= total + 16'd14 && total <= 16'hfff1 && udp_length <= 16'hffeb && total >= udp_length + 16'd20;
    wire values = kind == CONTRIBUTION || kind == SUPPLY;
    reg  [3:0] refused;
    always @* begin
        if (length < 16'd60)
            refused = BAD_FRAME;
        else if (dst_mac != nic_mac || dst_ip != nic_ip)
            refused = NOT_FOR_US;
        else if (ethertype != 16'h0800 || ip_version != 8'h45 || fragment[13:0] != 14'd0 || protocol != 8'd17 || !framed)
            refused = BAD_FRAME;
        else if (dst_port != 16'd48880)
            refused = NOT_FOR_US;
        else if (udp_length < 16'd40 || version != 4'd1 || udp_length != in_length + 16'd40 || in_length > 16'hffd7 ||
                 plane != 8'd0 || zero != 24'd0 || flags[7:6] != 2'd0 || type_ > 8'd7 || codec != 8'd0)
            refused = BAD_MESSAGE;
        else if (in_job != job || kind == 4'd0 || kind > LEAVE)
            refused = UNWANTED;
        else if (in_rank >= {{16-RANK-1{1'b0}}, workers} || !station)
            refused = UNKNOWN_WORKER;
        else if (values && type_ != 8'd0)
            refused = BAD_MESSAGE;
        else if (kind == REPORT && (in_length < 16'd8 || in_length > 16'd1032 || nonce == 32'd0 || in_slot >= {{32-SLOT-1{1'b0}}, slots}))
            refused = WRONG_SIZE;
        else if (kind == LEAVE && in_length != 16'd4)
            refused = WRONG_SIZE;
        else
            refused = ADDED;
    end
    wire misfit = in_slot >= {{32-SLOT-1{1'b0}}, slots} || in_length != bytes || in_elements > {7'd0, elements};

    localparam START = 3'd0, WAIT = 3'd1, JUDGE = 3'd2, COMBINE = 3'd3, SEND = 3'd4, DONE = 3'd5, RENEW = 3'd6;
    reg  [2:0]        step;
    reg  [BEAT-1:0]   beat;           // COMBINE: word of the store, behind word 9; SEND: word of values
    reg               valid;          // what was read is that of beat
    reg  [47:0]       carry;          // COMBINE: bytes 2..7 of the word before
    reg  [15:0]       tail;           // SEND: bytes 6..7 of the beat before
    reg  [4:0]        word;           // of what is sent
    reg  [RANK-1:0]   to;
    reg               all, notice, replace, completed, wrap, resend;
    reg               wrapped [0:(2<<SLOT)-1];
    wire [SLOT-1:0]   slot = in_slot[SLOT-1:0];

    wire ready, first, add, completes, answer, stale, early;
    wire contribution = kind == CONTRIBUTION && state == READY && in_epoch == epoch;
    wire judge = step == JUDGE && contribution && !misfit;
    native_slots #(.SLOT(SLOT), .RANK(RANK)) memory (
        .clk(clk), .rst(rst), .forget(step == RENEW), .ready(ready), .workers(workers), .judge(judge),
        .slot(slot), .round(round), .rank(rank),
        .first(first), .add(add), .completes(completes), .answer(answer), .stale(stale), .early(early));

    // Values, least significant byte first, two in a word: beat j is bytes 74 + 8j and on.
    wire [BEAT-1:0] last_beat = elements[8:1] - {7'd0, !elements[0]};
    wire [63:0]     aligned = {carry, stored[63:48]};
    wire [31:0]     a0 = {aligned[39:32], aligned[47:40], aligned[55:48], aligned[63:56]};
    wire [31:0]     a1 = {aligned[7:0], aligned[15:8], aligned[23:16], aligned[31:24]};
    wire [31:0]     k0 = {kept[39:32], kept[47:40], kept[55:48], kept[63:56]};
    wire [31:0]     k1 = {kept[7:0], kept[15:8], kept[23:16], kept[31:24]};
    wire [31:0]     s0 = a0 + k0;
    wire [31:0]     s1 = a1 + k1;
    wire            over0 = a0[31] == k0[31] && s0[31] != a0[31];
    wire            over1 = a1[31] == k1[31] && s1[31] != a1[31] && !(beat == last_beat + 8'd1 && elements[0]);
    wire [63:0]     sum = {s0[7:0], s0[15:8], s0[23:16], s0[31:24], s1[7:0], s1[15:8], s1[23:16], s1[31:24]};

    wire sent = m_tvalid && m_tready;
    assign read_next = step == COMBINE ? (valid ? beat + 8'd1 : beat) :
                       step == SEND && word >= 5'd9 && !notice && sent ? beat + 8'd1 :
                       step == SEND ? beat : 8'd0;
    wire [BEAT-1:0] value_next = step == COMBINE ? read_next - 8'd1 : read_next;
    value_ram #(.ADDR(SLOT + 1 + BEAT)) memory_of_values (
        .clk(clk), .raddr({slot, round[0], value_next}), .rdata(kept),
        .we(step == COMBINE && valid && beat != 8'd0), .waddr({slot, round[0], beat - 8'd1}), .wdata(replace ? aligned : sum));

    assign take = step == DONE;
    assign idle = ready && step == WAIT && s_tready;

    wire [31:0] shift1 = epoch ^ (epoch << 13);
    wire [31:0] shift2 = shift1 ^ (shift1 >> 17);

    // tell sends a notice of the job's state: to the sender, or to all.
    task tell(input to_all);
        begin
            notice <= 1'b1;
            all    <= to_all;
            to     <= to_all ? {RANK{1'b0}} : rank;
            word   <= 5'd0;
            step   <= SEND;
        end
    endtask

    // What a report says, and the reports with it.
    wire               has       = round != 32'd0 || in_slot != 32'd0 || in_length != 16'd8;
    wire [WORKERS-1:0] now_had   = (had & ~bit_of) | (has ? bit_of : {WORKERS{1'b0}});
    wire [WORKERS-1:0] now_fresh = (fresh & ~bit_of) | (life == 32'd0 ? bit_of : {WORKERS{1'b0}});
    wire               partly    = now_fresh != {WORKERS{1'b0}} && now_fresh != everybody;

    task report;
        begin
            if ((state == FORMING && (life == 32'd0 || in_epoch == epoch)) || (state == OUT_OF_STEP && life == 32'd0)) begin
                reported[rank] <= 1'b1;
                nonces[rank]   <= nonce;
                ports[rank]    <= src_port;
                had            <= now_had;
                fresh          <= now_fresh;
                if ((reported | bit_of) != everybody)
                    tell(1'b0);
                else if (now_had == {WORKERS{1'b0}}) begin
                    state <= READY;
                    tell(1'b1);
                end else if (partly) begin
                    state  <= OUT_OF_STEP;
                    blamed <= now_fresh;
                    tell(state != OUT_OF_STEP);
                end else begin
                    state  <= ABORTED;
                    blamed <= {WORKERS{1'b0}};
                    tell(1'b1);
                end
            end else if ((state == READY && !known || state == ABORTED) && life == 32'd0) begin
                // A worker that has started anew: so do all.
                epoch        <= shift2 ^ (shift2 << 5);
                state        <= FORMING;
                reported     <= bit_of;
                nonces[rank] <= nonce;
                ports[rank]  <= src_port;
                had          <= has ? bit_of : {WORKERS{1'b0}};
                fresh        <= bit_of;
                step         <= RENEW;
            end else begin
                if (state == READY && known)
                    ports[rank] <= src_port;
                tell(1'b0);
            end
        end
    endtask

    wire leaves = kind == LEAVE && state != ABORTED && (in_epoch == epoch || in_epoch == 32'd0) && reported[rank] && nonces[rank] == life;

    always @(posedge clk) begin
        judged <= 1'b0;
        if (worker_we)
            rows[worker_rank] <= {worker_mac, worker_ip};
        if (rst) begin
            step     <= START;
            state    <= FORMING;
            epoch    <= seed;
            reported <= {WORKERS{1'b0}};
            blamed   <= {WORKERS{1'b0}};
            had      <= {WORKERS{1'b0}};
            fresh    <= {WORKERS{1'b0}};
        end else case (step)
            START:
                if (ready)
                    step <= WAIT;
            WAIT:
                if (full) begin
                    resend <= 1'b0;
                    step   <= JUDGE;
                    if (refused != ADDED) begin
                        judged  <= 1'b1;
                        verdict <= refused;
                        step    <= DONE;
                    end
                end
            JUDGE: begin
                judged <= 1'b1;
                beat   <= 8'd0;
                valid  <= 1'b0;
                word   <= 5'd0;
                notice <= 1'b0;
                step   <= DONE;
                if (kind == REPORT) begin
                    verdict <= TOLD;
                    report;
                end else if (leaves && state != READY && fresh[rank]) begin
                    verdict        <= TOLD;
                    state          <= FORMING;
                    reported[rank] <= 1'b0;
                    had[rank]      <= 1'b0;
                    fresh[rank]    <= 1'b0;
                    tell(1'b0);
                end else if (leaves) begin
                    verdict <= TOLD;
                    state   <= ABORTED;
                    blamed  <= bit_of;
                    tell(1'b1);
                end else if (in_epoch != epoch || state != READY || kind == LEAVE) begin
                    verdict <= TOLD;
                    tell(1'b0);
                end else if (!contribution)
                    verdict <= UNWANTED;
                else if (misfit)
                    verdict <= WRONG_SIZE;
                else begin
                    verdict   <= completes ? COMPLETED : first || add ? ADDED : answer ? ANSWERED : stale ? STALE : early ? EARLY : DUPLICATE;
                    replace   <= first;
                    completed <= completes;
                    wrap      <= !first && wrapped[{slot, round[0]}];
                    all       <= completes;
                    resend    <= answer;
                    to        <= answer ? rank : {RANK{1'b0}};
                    step      <= first || add ? COMBINE : answer ? SEND : DONE;
                end
            end
            COMBINE: begin
                valid <= 1'b1;
                beat  <= read_next;
                if (valid) begin
                    carry <= stored[47:0];
                    if (beat != 8'd0 && !replace)
                        wrap <= wrap || over0 || over1;
                    if (beat == last_beat + 8'd1) begin
                        beat <= 8'd0;
                        wrapped[{slot, round[0]}] <= !replace && (wrap || over0 || over1);
                        step <= completed ? SEND : DONE;
                    end
                end
            end
            SEND:
                if (sent) begin
                    if (m_tlast) begin
                        beat <= 8'd0;
                        word <= 5'd0;
                        to   <= to + 1'b1;
                        if (!all || {1'b0, to} + 1'b1 == workers)
                            step <= DONE;
                    end else if (word >= 5'd9 && !notice) begin
                        beat <= beat + 8'd1;
                        tail <= kept[15:0];
                    end else
                        word <= word + 5'd1;
                end
            RENEW: // the slots are being forgotten; then all are told
                tell(1'b1);
            default: // DONE, one cycle, in which the frame is released
                step <= START;
        endcase
    end

    // What is sent, by the header's words, and a notice's body behind it.
    wire [47:0] to_mac;
    wire [31:0] to_ip;
    assign {to_mac, to_ip} = rows[to];
    wire [WORKERS-1:0] ranks = state == FORMING ? everybody & ~reported : blamed;
    wire [15:0] bitmap_length = state == READY ? 16'd0 : ({{16-RANK-1{1'b0}}, workers} + 16'd7) >> 3;
    wire [15:0] out_length = notice ? 16'd32 + (ranks == {WORKERS{1'b0}} ? 16'd0 : bitmap_length) : bytes;
    wire [15:0] out_total = out_length + 16'd60;
    // A result that is asked for once more goes where it was asked from, all else where the last report came from.
    wire [15:0] out_port = !all && to == rank ? src_port : ports[to];
    wire [15:0] out_checksum;
    ipv4_checksum reply_checksum (
        .total(out_total), .dont_fragment(1'b1), .ttl(8'd64), .protocol(8'd17), .src(nic_ip), .dst(to_ip),
        .checksum(out_checksum));

    wire [7:0]  out_flags = notice ? 8'd0 : {3'b000, wrap, 3'b000, resend};
    wire [15:0] out_rank = notice ? {11'd0, to} : {10'd0, workers};
    wire [31:0] out_nonce = to == rank && kind == REPORT ? nonce : 32'd0;
    wire [7:0]  code = state == READY ? 8'd2 : state == FORMING ? 8'd1 : state == ABORTED ? 8'd4 : 8'd5;
    // A report of a life that is over: its sender is told so while the others go on.
    wire        over = kind == REPORT && state == READY && !known;
    wire [31:0] ranks32 = {{32-WORKERS{1'b0}}, ranks};
    wire [31:0] bitmap = state == READY ? 32'd0 : {ranks32[7:0], ranks32[15:8], ranks32[23:16], ranks32[31:24]};

    wire [14*64-1:0] frame = {
        to_mac, nic_mac, 16'h0800, 8'h45, 8'd0, out_total, 16'd0, 16'h4000, 8'd64, 8'd17, out_checksum, nic_ip, to_ip,
        16'd48880, out_port, out_length + 16'd40, 16'd0,
        4'd1, notice ? NOTICE : RESULT, out_flags, 8'd0, 8'd0, job, out_rank, epoch,
        notice ? 96'd0 : {round, in_slot, collective}, notice ? 16'd0 : in_elements, out_length, 32'd0,
        over ? 8'd4 : code, 24'd0, {10'd0, workers}, {7'd0, elements}, {{32-SLOT-1{1'b0}}, slots},
        state == READY ? epoch : 32'd0, 64'd0, deadline, out_nonce, bitmap, 16'd0};

    wire [15:0] length_out = out_total + 16'd14;
    wire [12:0] last_word = length_out[15:3] - {12'd0, length_out[2:0] == 3'd0};
    wire [12:0] index = {8'd0, word} + (notice ? 13'd0 : {5'd0, beat});
    wire [63:0] next = notice || word < 5'd9 ? frame[64*(13 - {27'd0, word}) +: 64] :
                       beat == 8'd0 ? {16'd0, kept[63:16]} : {tail, kept[63:16]};

    assign m_tvalid = step == SEND && ready;
    assign m_tdata  = {next[7:0], next[15:8], next[23:16], next[31:24], next[39:32], next[47:40], next[55:48], next[63:56]};
    assign m_tlast  = index == last_word;
    assign m_tkeep  = !m_tlast || length_out[2:0] == 3'd0 ? 8'hff : 8'hff >> (4'd8 - {1'b0, length_out[2:0]});
endmodule
