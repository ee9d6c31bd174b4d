docker run \
  --detach \
  --name example \
  --restart on-failure:3 \
  --gpus all \
  --stop-timeout 120 \
  -p 127.0.0.1:8080:80 \
  -v tgi-data:/data \
  -e HF_HOME=/data \
  ghcr.io/huggingface/text-generation-inference:3.3.7 \
  --model-id example-org/example-13b \
  --num-shard 1 \
  --max-input-tokens 8191 \
  --max-total-tokens 8192 \
  --max-batch-prefill-tokens 4096 \
  --max-batch-total-tokens 16384 \
  --max-concurrent-requests 128 \
  --cuda-graphs 1,2,4,8,16,32 \
  --usage-stats off
