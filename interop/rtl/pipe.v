// pipe joins an aggregator to standard input and output. A frame is 4 bytes of length, the first the highest, and so many
// bytes; length 0 asks for an answer of length 0, which comes when everything that earlier frames caused has been put
// out. The simulation ends with its input.
//
// Plusargs, numbers in hexadecimal without 0x where they are addresses:
//
//   +nic_mac=0600000000fe +nic_ip=0a3200fe   the addresses of the NIC
//   +workers=2                               1..32
//   +mac=020000000100 +ip=0a320001           addresses of rank 0; each next rank's are one higher
//   +table=FILE                              or a file for $readmemh: a line of 20 digits for each rank, MAC and IP
//   +elements=64                             or 256: packets of this size only; 0, the default: both
//   +job=1 +slots=512 +epoch=11111111 +deadline=0   of a native job, whose +elements are 1..360, 256 if it is not said
//   +stall=N                                 pauses on both streams, from the seed N
//   +verbose                                 a line on standard error for each frame
//   +vcd=FILE                                all signals
`timescale 1ns/1ps
module pipe;
    parameter SLOT   = 9;
    parameter NATIVE = 0;
    localparam RANK = 5;
    localparam STDIN = 32'h8000_0000, STDOUT = 32'h8000_0001, STDERR = 32'h8000_0002;

    reg            clk = 1'b0, rst = 1'b1;
    reg  [47:0]    nic_mac, mac;
    reg  [31:0]    nic_ip, ip;
    integer        workers, elements, slots, stall, seed, i;
    reg  [15:0]    job;
    reg  [31:0]    epoch, deadline;
    reg            verbose;
    reg  [79:0]    rows [0:(1<<RANK)-1];
    reg  [1023:0]  file;

    reg            worker_we = 1'b0;
    reg [RANK-1:0] worker_rank;
    reg [47:0]     worker_mac;
    reg [31:0]     worker_ip;

    reg  [63:0]    s_tdata;
    reg  [7:0]     s_tkeep;
    reg            s_tlast;
    reg            s_tvalid = 1'b0;
    wire           s_tready;
    wire [63:0]    m_tdata;
    wire [7:0]     m_tkeep;
    wire           m_tlast, m_tvalid;
    reg            m_tready = 1'b1;
    wire           idle, judged;
    wire [3:0]     verdict;

    generate if (NATIVE) begin : native
        native_aggregator #(.SLOT(SLOT), .RANK(RANK)) dut (
            .clk(clk), .rst(rst), .nic_mac(nic_mac), .nic_ip(nic_ip), .job(job), .workers(workers[RANK:0]),
            .slots(slots[SLOT:0]), .elements(elements[8:0]), .deadline(deadline), .seed(epoch),
            .worker_we(worker_we), .worker_rank(worker_rank), .worker_mac(worker_mac), .worker_ip(worker_ip),
            .s_tdata(s_tdata), .s_tkeep(s_tkeep), .s_tlast(s_tlast), .s_tvalid(s_tvalid), .s_tready(s_tready),
            .m_tdata(m_tdata), .m_tkeep(m_tkeep), .m_tlast(m_tlast), .m_tvalid(m_tvalid), .m_tready(m_tready),
            .idle(idle), .judged(judged), .verdict(verdict));
    end else begin : switchml
        switchml_aggregator #(.SLOT(SLOT), .RANK(RANK)) dut (
            .clk(clk), .rst(rst), .nic_mac(nic_mac), .nic_ip(nic_ip), .workers(workers[RANK:0]),
            .narrow(elements != 256), .broad(elements != 64),
            .worker_we(worker_we), .worker_rank(worker_rank), .worker_mac(worker_mac), .worker_ip(worker_ip),
            .s_tdata(s_tdata), .s_tkeep(s_tkeep), .s_tlast(s_tlast), .s_tvalid(s_tvalid), .s_tready(s_tready),
            .m_tdata(m_tdata), .m_tkeep(m_tkeep), .m_tlast(m_tlast), .m_tvalid(m_tvalid), .m_tready(m_tready),
            .idle(idle), .judged(judged), .verdict(verdict));
    end endgenerate

    // What comes out is kept until its end, since its length is written first. Words, not bytes: the simulator's time
    // goes into this file otherwise.
    reg [63:0] out [0:511];
    integer    words, k;

    task put_length(input [31:0] n);
        $fwrite(STDOUT, "%c%c%c%c", n[31:24], n[23:16], n[15:8], n[7:0]);
    endtask

    task put_frame;
        begin
            put_length(8 * words + {31'd0, m_tkeep[0]} + {31'd0, m_tkeep[1]} + {31'd0, m_tkeep[2]} + {31'd0, m_tkeep[3]} +
                       {31'd0, m_tkeep[4]} + {31'd0, m_tkeep[5]} + {31'd0, m_tkeep[6]} + {31'd0, m_tkeep[7]});
            for (k = 0; k < words; k = k + 1)
                $fwrite(STDOUT, "%c%c%c%c%c%c%c%c", out[k][7:0], out[k][15:8], out[k][23:16], out[k][31:24],
                        out[k][39:32], out[k][47:40], out[k][55:48], out[k][63:56]);
            for (k = 0; k < 8; k = k + 1)
                if (m_tkeep[k])
                    $fwrite(STDOUT, "%c", m_tdata[8*k +: 8]);
        end
    endtask

    // One clock. Inputs change while it is low, and are looked at, with the outputs, at its rising edge.
    reg took;
    task tick;
        begin
            if (stall != 0)
                m_tready = $random(seed) % 3 != 0;
            #1;
            took = s_tvalid && s_tready;
            if (m_tvalid && m_tready) begin
                if (m_tlast) begin
                    put_frame;
                    words = 0;
                end else begin
                    out[words] = m_tdata;
                    words = words + 1;
                end
            end
            if (verbose && judged)
                $fdisplay(STDERR, "frame %0d: verdict %0d", frames, verdict);
            clk = 1'b1;
            #1;
            clk = 1'b0;
        end
    endtask

    // A number of 4 bytes, or -1 at the end of the input.
    integer a, b, c, d;
    task get_length(output integer n);
        begin
            a = $fgetc(STDIN);
            b = $fgetc(STDIN);
            c = $fgetc(STDIN);
            d = $fgetc(STDIN);
            n = d < 0 ? -1 : {a[7:0], b[7:0], c[7:0], d[7:0]};
        end
    endtask

    reg [63:0] turned;
    integer    n, left, at, frames;
    initial begin
        if (!$value$plusargs("nic_mac=%h", nic_mac)) nic_mac = 48'h0600000000fe;
        if (!$value$plusargs("nic_ip=%h", nic_ip)) nic_ip = 32'h0a3200fe;
        if (!$value$plusargs("mac=%h", mac)) mac = 48'h020000000100;
        if (!$value$plusargs("ip=%h", ip)) ip = 32'h0a320001;
        if (!$value$plusargs("workers=%d", workers)) workers = 2;
        if (!$value$plusargs("elements=%d", elements)) elements = 0;
        if (!$value$plusargs("stall=%d", stall)) stall = 0;
        if (!$value$plusargs("job=%d", job)) job = 16'd1;
        if (!$value$plusargs("slots=%d", slots)) slots = 1 << SLOT;
        if (!$value$plusargs("epoch=%h", epoch)) epoch = 32'h11111111;
        if (!$value$plusargs("deadline=%d", deadline)) deadline = 32'd0;
        seed = stall;
        verbose = $test$plusargs("verbose") != 0;
        if ($value$plusargs("vcd=%s", file)) begin
            $dumpfile(file);
            $dumpvars(0, pipe);
        end
        if (NATIVE && elements == 0)
            elements = 256;
        if (workers < 1 || workers > (1 << RANK) || slots < 1 || slots > (1 << SLOT) || epoch == 0 || elements > 360 ||
            (!NATIVE && elements != 0 && elements != 64 && elements != 256)) begin
            $fdisplay(STDERR, "pipe: %0d workers, %0d slots, %0d elements: 1..%0d workers, 1..%0d slots; elements 64 or 256 or 0 for either, of native jobs 1..360",
                      workers, slots, elements, 1 << RANK, 1 << SLOT);
            $finish(0);
        end
        for (i = 0; i < (1 << RANK); i = i + 1)
            rows[i] = {mac + i, ip + i};
        if ($value$plusargs("table=%s", file))
            $readmemh(file, rows, 0, workers - 1);

        words = 0;
        frames = 0;
        tick;
        tick;
        rst = 1'b0;
        for (i = 0; i < workers; i = i + 1) begin
            worker_we = 1'b1;
            worker_rank = i[RANK-1:0];
            {worker_mac, worker_ip} = rows[i];
            tick;
        end
        worker_we = 1'b0;
        while (!idle)
            tick;

        get_length(n);
        while (n >= 0) begin
            at = 0;
            while (at < n) begin
                left = n - at < 8 ? n - at : 8;
                if (left == 8) begin
                    i = $fread(turned, STDIN);
                    s_tdata = {turned[7:0], turned[15:8], turned[23:16], turned[31:24],
                               turned[39:32], turned[47:40], turned[55:48], turned[63:56]};
                end else begin
                    s_tdata = {32'hdeadbeef, 32'hdeadbeef}; // behind the end there is anything
                    for (i = 0; i < left; i = i + 1) begin
                        a = $fgetc(STDIN);
                        s_tdata[8*i +: 8] = a[7:0];
                    end
                end
                s_tkeep = 8'hff >> (8 - left);
                at = at + left;
                s_tlast = at >= n;
                if (stall != 0)
                    while ($random(seed) % 4 == 0)
                        tick;
                s_tvalid = 1'b1;
                tick;
                while (!took)
                    tick;
                s_tvalid = 1'b0;
            end
            frames = frames + 1;
            while (!idle)
                tick;
            if (n == 0)
                put_length(0);
            $fflush(STDOUT);
            get_length(n);
        end
        $finish(0);
    end
endmodule
