// What the host asks of CUDA for weights that are kept in another form from call to call: plain C,
// as main.cpp reads no CUDA header. Results are CUDA error codes.

// @held_weights deps:
// whether work given to the stream is recorded into a graph instead of run
extern "C" int stream_is_capturing(void* stream, int* capturing) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
    *capturing = status != cudaStreamCaptureStatusNone;
    return int(error);
}

// an event that marks the last use of something
extern "C" int make_event(void** event) {
    return int(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event),
                                        cudaEventDisableTiming));
}

// the event stands for all work given to the stream so far
extern "C" int record_event(void* event, void* stream) {
    return int(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}

// later work of the stream waits for the event
extern "C" int wait_for_event(void* event, void* stream) {
    return int(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                   static_cast<cudaEvent_t>(event), 0));
}

// the host waits for the event, which nobody needs any more
extern "C" int end_event(void* event) {
    const cudaError_t error = cudaEventSynchronize(static_cast<cudaEvent_t>(event));
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
    return int(error);
}
