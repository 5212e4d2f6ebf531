-- Requests of the loads of HTTP, and their figures as JSON.
local kind, bytes, blocks, path, body, number

function init(arguments)
    kind = arguments[1]
    if kind == "get" then
        bytes = tonumber(arguments[2])
        blocks, path = math.floor(tonumber(arguments[3]) / bytes), arguments[4]
    elseif kind == "put" then
        body, path, number = string.rep("x", tonumber(arguments[2])), arguments[3], 0
    else
        path = arguments[2]
    end
    math.randomseed(17)
end

function request()
    if kind == "get" then
        local from = math.random(0, blocks - 1) * bytes
        local range = string.format("bytes=%d-%d", from, from + bytes - 1)
        return wrk.format("GET", path, { ["Range"] = range })
    elseif kind == "put" then
        number = (number + 1) % 64
        return wrk.format("PUT", path .. number, {}, body)
    end
    return wrk.format("PROPFIND", path, { ["Depth"] = "1" })
end

function done(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format('figures {"requests":%d,"seconds":%f,"bytes":%d,"errors":%d,"p50":%f,"p99":%f}\n',
        summary.requests, summary.duration / 1e6, summary.bytes, failed, latency:percentile(50), latency:percentile(99)))
end
